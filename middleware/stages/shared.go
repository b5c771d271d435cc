package stages

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hold"
)

// nameOf names a publisher or subscriber as the router does.
func nameOf(v any) string {
	if s, ok := v.(fmt.Stringer); ok {
		return s.String()
	}
	return strings.TrimLeft(fmt.Sprintf("%T", v), "*")
}

// sharedSubscriber is a subscriber that Config.Subscriber returned, once or for several stages.
type sharedSubscriber struct {
	message.Subscriber
	redelivery *hold.Redelivery
	users      int       // stages that have it; guarded by Stages.mu
	live       bool      // a handler has it too: only the router closes it
	told       sync.Once // that its messages came again
	once       sync.Once
	err        error
}

// Close closes the subscriber, once.
func (l *sharedSubscriber) Close() error {
	l.once.Do(func() { l.err = l.Subscriber.Close() })
	return l.err
}

// subscribers calls Config.Subscriber for each stage of h. After an error it closes the subscribers that it got for h
// alone.
func (s *Stages) subscribers(router *message.Router, h *handler,
	live message.Subscriber) (waiters []*waiter, err error) {
	for _, t := range h.topics {
		var sub message.Subscriber
		err := safecall.Call("stages.Subscriber", func() (err error) {
			sub, err = s.config.Subscriber(t.topic, t.group)
			return err
		})
		if err == nil && safecall.IsNil(sub) {
			err = errors.New("it is nil")
		}
		if err != nil {
			err = fmt.Errorf("Config.Subscriber for stage topic %q: %w", t.topic, err)
			for _, w := range waiters {
				err = errors.Join(err, s.closeUnused(w.sub))
			}
			return nil, err
		}
		shared := s.share(sub, same(sub, live) || hasSubscriber(router, sub))
		t.subscribedWith(shared)
		waiters = append(waiters, newWaiter(t, shared))
	}
	return waiters, nil
}

func (s *Stages) share(sub message.Subscriber, live bool) *sharedSubscriber {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.shared, func(l *sharedSubscriber) bool { return same(l.Subscriber, sub) })
	if i < 0 {
		i = len(s.shared)
		s.shared = append(s.shared, &sharedSubscriber{Subscriber: sub, redelivery: hold.RedeliveryOf(sub)})
	}
	l := s.shared[i]
	l.users++
	l.live = l.live || live
	return l
}

// same reports whether two subscribers are one. Those that cannot be compared are not.
func same(a, b message.Subscriber) bool {
	if a == nil || b == nil || !reflect.ValueOf(a).Comparable() || !reflect.ValueOf(b).Comparable() {
		return false
	}
	return a == b
}

// release reports whether the stage that ends was the last one with the subscriber.
func (s *Stages) release(l *sharedSubscriber) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.users--
	if last = l.users == 0; last {
		s.shared = slices.DeleteFunc(s.shared, func(other *sharedSubscriber) bool { return other == l })
	}
	return last
}

// closeUnused closes the subscriber of a stage that has ended, if no other stage has it. Watermill's router does not
// close the subscriber of a handler whose context ended before the router closed.
func (s *Stages) closeUnused(l *sharedSubscriber) error {
	if !s.release(l) || l.live {
		return nil
	}
	return safecall.Call("subscriber", l.Close)
}

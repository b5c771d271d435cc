package stages

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/safecall"
)

// sharedSubscriber is a subscriber that Config.Subscriber returned, once or for several stages.
type sharedSubscriber struct {
	message.Subscriber
	users int  // stages that have it; guarded by Stages.mu
	live  bool // a handler's own, which is not closed before its router is
	once  sync.Once
	err   error
}

// Close closes the subscriber, once.
func (l *sharedSubscriber) Close() error {
	l.once.Do(func() { l.err = l.Subscriber.Close() })
	return l.err
}

// subscribers asks for the subscriber of each stage. After an error it closes those that no other handler has.
func (s *Stages) subscribers(router *message.Router, h *handler, live message.Subscriber) (waiters []*waiter, err error) {
	for _, wait := range h.waits {
		var sub message.Subscriber
		err := safecall.Call("stages.Subscriber", func() (err error) {
			sub, err = s.config.Subscriber(wait.topic, wait.group())
			return err
		})
		if err == nil && safecall.IsNil(sub) {
			err = errors.New("it is nil")
		}
		if err != nil {
			err = fmt.Errorf("Config.Subscriber for stage topic %q: %w", wait.topic, err)
			for _, w := range waiters {
				err = errors.Join(err, s.closeUnused(w.sharedSubscriber))
			}
			return nil, err
		}
		waiters = append(waiters, wait.around(s.share(sub, same(sub, live) || hasSubscriber(router, sub))))
	}
	return waiters, nil
}

func (s *Stages) share(sub message.Subscriber, live bool) *sharedSubscriber {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.shared, func(l *sharedSubscriber) bool { return same(l.Subscriber, sub) })
	if i < 0 {
		i = len(s.shared)
		s.shared = append(s.shared, &sharedSubscriber{Subscriber: sub})
	}
	l := s.shared[i]
	l.users++
	l.live = l.live || live
	return l
}

// release reports whether no stage has the subscriber any more.
func (s *Stages) release(l *sharedSubscriber) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.users--
	if last = l.users == 0; last {
		s.shared = slices.DeleteFunc(s.shared, func(other *sharedSubscriber) bool { return other == l })
	}
	return last
}

// closeUnused closes the subscriber of a stage that has ended, when no other stage has it. Watermill's router closes no
// subscriber of a handler whose context ended before the router closed.
func (s *Stages) closeUnused(l *sharedSubscriber) error {
	if !s.release(l) || l.live {
		return nil
	}
	return safecall.Call("subscriber", l.Close)
}

package spillway

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hold/graceful"
	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

// drains lets the handlers of a router finish when it closes.
type drains struct {
	configured time.Duration
	router     time.Duration // its CloseTimeout; 0 if it is not known

	mu   sync.Mutex
	open map[*graceful.Drain]struct{} // of subscribers that do not drain by themselves
}

func (ch *Channel) drainsOf(router *message.Router) *drains {
	return &drains{configured: ch.drainTimeout, router: foreign.CloseTimeout(router),
		open: make(map[*graceful.Drain]struct{})}
}

// check refuses a time in which the router does not wait.
func (d *drains) check() error {
	if d.router > 0 && d.configured >= d.router {
		return fmt.Errorf("spillway: Config.DrainTimeout is %s, and the router gives up closing after its CloseTimeout of %s, "+
			"while handlers run: lower DrainTimeout, or raise CloseTimeout", d.configured, d.router)
	}
	return nil
}

// timeout leaves half of a short CloseTimeout for what comes after the handlers.
func (d *drains) timeout() time.Duration {
	switch {
	case d.configured != 0:
		return d.configured
	case d.router > 0:
		return min(graceful.Timeout, d.router/2)
	}
	return graceful.Timeout
}

// decorate is the router's subscriber decorator that does so.
func (d *drains) decorate(sub message.Subscriber) (message.Subscriber, error) {
	return &draining{sub, d}, nil
}

func (d *drains) begin(drain *graceful.Drain) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open[drain] = struct{}{}
}

func (d *drains) end(drain *graceful.Drain) {
	drain.End()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, drain)
}

// stop begins all drains, and returns when they have ended: the router closes the subscribers of its handlers at the
// same time, and handlers can share one.
func (d *drains) stop() {
	d.mu.Lock()
	var all []*graceful.Drain
	for drain := range d.open {
		drain.Stop()
		all = append(all, drain)
	}
	d.mu.Unlock()
	for _, drain := range all {
		<-drain.Work.Done()
	}
}

// draining is a subscriber in a router with a channel.
type draining struct {
	message.Subscriber
	of *drains
}

// Subscribe lets a subscriber of this module drain by itself. It goes between any other and the router: while handlers
// finish it keeps the subscription alive, and takes nothing from it.
func (s *draining) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	var byItself atomic.Bool
	drain := graceful.Begin(graceful.With(ctx, s.of.timeout()))
	subscribed, end := context.WithCancel(graceful.Watch(graceful.With(context.WithoutCancel(ctx), s.of.timeout()),
		&byItself))
	in, err := s.Subscriber.Subscribe(subscribed, topic)
	if err != nil {
		drain.End()
		end()
		return nil, err
	}
	if byItself.Load() {
		context.AfterFunc(drain.Taking, drain.End)
	}
	context.AfterFunc(drain.Work, end)
	if byItself.Load() || drain.Timeout == 0 {
		return in, nil
	}
	s.of.begin(drain)
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		open, more := pass(drain, in, out)
		if !more { // the subscription ended by itself, and its handlers go on
			context.AfterFunc(drain.Taking, func() { s.of.end(drain) })
			return
		}
		settle(drain, open)
		s.of.end(drain)
		for msg := range in { // what the subscriber offers until it has ended
			msg.Nack()
		}
	}()
	return out, nil
}

// pass passes messages on until the drain begins, or the subscription ends by itself. It returns those that are not
// settled, and whether the subscription goes on.
func pass(drain *graceful.Drain, in <-chan *message.Message,
	out chan<- *message.Message) (open []*message.Message, more bool) {
	for most := minOpen; ; {
		select {
		case <-drain.Taking.Done():
			return open, true
		case msg, ok := <-in:
			if !ok {
				return nil, false
			}
			if len(open) >= most {
				open = slices.DeleteFunc(open, settled)
				most = max(2*len(open), minOpen)
			}
			msg.SetContext(graceful.Until(msg.Context(), drain.Taking))
			select {
			case out <- msg:
				open = append(open, msg)
			case <-drain.Taking.Done():
				context.AfterFunc(drain.Work, func() { msg.Nack() })
				return open, true
			}
		}
	}
}

// minOpen is how many messages are kept before those that are settled are left out.
const minOpen = 16

// settle waits until the messages are, or the drain is over.
func settle(drain *graceful.Drain, open []*message.Message) {
	for _, msg := range open {
		select {
		case <-msg.Acked():
		case <-msg.Nacked():
		case <-drain.Work.Done():
			return
		}
	}
}

func settled(msg *message.Message) bool {
	select {
	case <-msg.Acked():
		return true
	case <-msg.Nacked():
		return true
	default:
		return false
	}
}

// Close closes the subscriber when the handlers of the router have finished.
func (s *draining) Close() error {
	s.of.stop()
	return s.Subscriber.Close()
}

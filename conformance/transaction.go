package conformance

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/poison"
)

// Feature D9: the handler's writes, its key, its outputs and its dead letter commit with the acknowledgement. No reader
// sees them before, and when the message is requeued after all is done, nothing of it stays.
func (b *bench) oneTransaction() {
	b.need("Database and Backlog", b.target.Database != nil && b.target.Backlog != nil)
	var given atomic.Int32
	outputs := b.target.Backlog(b.T, "witness")
	visible := func(when string, want int) {
		n, err := outputs(b.Context(), b.outs)
		if effects := len(b.effects()); err != nil || n != want || effects != want {
			b.Errorf("%s: %d outputs and %d effects instead of %d: %v", when, n, effects, want, err)
		}
	}
	// A publisher that writes the output, and then refuses: the router gives the source back.
	late := refusingAfter{b.target.Publisher(b.T), func() error {
		if given.Add(1) == 1 {
			visible("before the message is requeued", 0)
			return errNotNow
		}
		visible("before the acknowledgement", 0)
		return nil
	}}
	router := b.router()
	dlc := b.channel(func(c *spillway.Config) {
		next := c.Queue.Hooks.OnDeadLetter
		c.Queue.Hooks.OnDeadLetter = func(ctx context.Context, l poison.Letter) {
			if n, err := outputs(b.Context(), b.dlq()); err != nil || n != 0 {
				b.Errorf("before the acknowledgement: %d dead letters: %v", n, err)
			}
			next(ctx, l)
		}
	})
	router.AddMiddleware(dlc.Middleware) // without the decorator, which would insist on the output
	router.AddHandler(handlerName, b.topic, b.target.Subscriber(b.T, b.group), b.outs, late,
		func(msg *message.Message) ([]*message.Message, error) {
			if msg.UUID == "before" {
				return nil, nil
			}
			if err := b.apply(msg); err != nil {
				return nil, err
			}
			if msg.UUID == "bad" { // a statement that fails spoils its attempt, and nothing else
				_, err := idempotency.Tx(msg.Context()).Exec(`INSERT INTO nowhere (id) VALUES (1)`)
				return nil, classify.Permanent(errors.Join(errNever, err))
			}
			return []*message.Message{message.NewMessage("", []byte("of "+msg.UUID))}, nil
		})
	b.initialize(dlc)
	b.ids("before", "good") // what is acked in the same transaction commits, and takes nothing along of what is requeued
	b.run(router)
	b.untilApplied("good")
	if given.Load() != 2 {
		b.Errorf("published %d times", given.Load())
	}
	visible("in the end", 1)
	b.ids("bad")
	b.untilPlaced(1)
	if l := b.letter(b.dlq()); l.Original.UUID != "bad" {
		b.Errorf("set aside: %q", l.Original.UUID)
	}
	b.wantOnce("good")
}

var errNotNow = errors.New("not now")

// refusingAfter publishes, and then says what after says.
type refusingAfter struct {
	message.Publisher
	after func() error
}

func (p refusingAfter) Publish(topic string, messages ...*message.Message) error {
	if err := p.Publisher.Publish(topic, messages...); err != nil {
		return err
	}
	return p.after()
}

package conformance

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/poison"
)

// producing returns a handler that applies the message and produces one output that names it.
func (b *bench) producing(fail func(id string) error) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		out := []*message.Message{message.NewMessage("", []byte("of "+msg.UUID))}
		if err := fail(msg.UUID); err != nil {
			return out, err
		}
		return out, b.apply(msg)
	}
}

// Feature D13: what a failed handler returned is not published.
func (b *bench) failedOutputs() {
	b.start(b.channel(), b.producing(func(id string) error {
		if id == "bad" {
			return classify.Permanent(errNever)
		}
		return nil
	}))
	b.ids("bad", "good")
	b.untilApplied("good")
	b.untilPlaced(1)
	if out := b.read(b.outs, 1)[0]; string(out.Payload) != "of good" {
		b.Errorf("published: %q", out.Payload)
	}
}

// Feature D15: an output that its destination never takes sets its source aside, and the topic goes on.
func (b *bench) undeliverableOutput() {
	outputs := refusing{b.target.Publisher(b.T), func(_ string, msg *message.Message) error {
		if string(msg.Payload) == "of bad" {
			return errors.New("not this one")
		}
		return nil
	}}
	b.startWith(b.channel(), outputs, b.producing(func(string) error { return nil }))
	b.ids("bad", "good")
	b.untilApplied("good")
	b.untilPlaced(1)
	if l := b.letter(b.dlq()); l.Original.UUID != "bad" || l.Failure.Reason != classify.ReasonOutput {
		b.Errorf("set aside: %q with reason %q", l.Original.UUID, l.Failure.Reason)
	}
	if out := b.read(b.outs, 1)[0]; string(out.Payload) != "of good" {
		b.Errorf("published: %q", out.Payload)
	}
}

// Feature I2: a handler's writes are gone with its failure, and there, once, with its success; no reader sees them
// before.
func (b *bench) transaction() {
	var tries atomic.Int32
	b.start(b.channel(), func(msg *message.Message) ([]*message.Message, error) {
		if err := b.apply(msg); err != nil {
			return nil, err
		}
		if committed := b.effects()[msg.UUID]; committed > 0 {
			b.Errorf("before its commit %q is visible %d times", msg.UUID, committed)
		}
		if idempotency.Tx(msg.Context()) == (*sql.Tx)(nil) {
			b.Error("no transaction in the message's context")
		}
		if msg.UUID == "flaky" && tries.Add(1) < 3 {
			return nil, errors.New("after the write")
		}
		return nil, nil
	})
	b.ids("flaky", "good", "good")
	b.untilApplied("flaky", "good")
	b.until("the duplicate was absorbed", func() bool { return b.duplicate.Load() >= 1 })
	b.wantOnce("flaky", "good")
	if n := tries.Load(); n != 3 { // or what a failure left behind made the next attempt a duplicate
		b.Errorf("tried %d times instead of 3", n)
	}
}

// Feature I4: the effect is committed and its output refused. After the redrive the output comes, and the effect stays
// one.
func (b *bench) recordedOutputs() {
	var shut atomic.Bool
	shut.Store(true)
	outputs := refusing{b.target.Publisher(b.T), shutWhile(&shut)}
	b.startWith(b.channel(), outputs, b.producing(func(string) error { return nil }))
	b.ids("order")
	b.untilPlaced(1)
	b.untilApplied("order")
	b.wantOnce("order")
	shut.Store(false)
	if report := b.drain(b.dlq(), 1); report.Redriven != 1 {
		b.Errorf("%+v", report)
	}
	if out := b.read(b.outs, 1)[0]; string(out.Payload) != "of order" || out.UUID == "" {
		b.Errorf("published: %q %q", out.UUID, out.Payload)
	}
	b.wantOnce("order")
}

// An output that a broker may be unable to take ends as published, or sets its source aside. Either way the good
// message behind it is handled.
func (b *bench) largeOutput() {
	b.start(b.channel(), func(msg *message.Message) ([]*message.Message, error) {
		if msg.UUID == "large" {
			return []*message.Message{message.NewMessage("", bytes.Repeat([]byte("x"), 2<<20))}, nil
		}
		return nil, b.apply(msg)
	})
	b.ids("large", "good")
	b.untilApplied("good")
	if b.target.MaxMessage >= 3<<20 || b.target.MaxMessage == 0 {
		if out := b.read(b.outs, 1)[0]; len(out.Payload) != 2<<20 {
			b.Errorf("an output of %d bytes", len(out.Payload))
		}
		return
	}
	b.untilPlaced(1)
	if l := b.letter(b.dlq()); l.Original.UUID != "large" || l.Failure.Reason != classify.ReasonOutput {
		b.Errorf("set aside: %q with reason %q", l.Original.UUID, l.Failure.Reason)
	}
}

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

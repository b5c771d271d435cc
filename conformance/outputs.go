package conformance

import (
	"bytes"
	"database/sql"
	"errors"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
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

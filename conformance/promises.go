package conformance

import (
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/upstream/destination"
	"github.com/watermill-spillway/spillway/poison"
)

var errNever = errors.New("this will never work")

// refusing is a publisher that refuses while refuse says so.
type refusing struct {
	message.Publisher
	refuse func(topic string, msg *message.Message) error
}

// InitializeTopicsFor makes topics as the publisher inside does.
func (p refusing) InitializeTopicsFor(source string, topics ...string) error {
	switch pub := p.Publisher.(type) {
	case destination.SourceInitializer:
		return pub.InitializeTopicsFor(source, topics...)
	case poison.Initializer:
		return pub.InitializeTopics(topics...)
	}
	return nil
}

func (p refusing) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		if err := p.refuse(topic, msg); err != nil {
			return err
		}
	}
	return p.Publisher.Publish(topic, messages...)
}

// shutWhile refuses everything while the gate is shut.
func shutWhile(gate *atomic.Bool) func(string, *message.Message) error {
	return func(string, *message.Message) error {
		if gate.Load() {
			return errors.New("the destination is down")
		}
		return nil
	}
}

// Promise P1: while no sink takes the letter, its message comes again and is not acked; then it is placed, once.
func (b *bench) refusedLetter() {
	var shut atomic.Bool
	shut.Store(true)
	var deliveries atomic.Int32
	ch := b.channel(func(c *spillway.Config) {
		c.Publisher = refusing{b.dead, shutWhile(&shut)}
		c.Queue.PublishBackoff = time.Millisecond
	})
	b.start(ch, func(msg *message.Message) ([]*message.Message, error) {
		if msg.UUID == "bad" {
			deliveries.Add(1)
			return nil, classify.Permanent(errNever)
		}
		return nil, b.apply(msg)
	})
	b.ids("bad", "good-1", "good-2")
	b.until("it was delivered three times", func() bool { return deliveries.Load() >= 3 })
	if n := b.placed.Load(); n != 0 {
		b.Errorf("%d letters placed in a destination that is down", n)
	}
	shut.Store(false)
	b.untilApplied("good-1", "good-2")
	b.untilPlaced(1)
	if l := b.letter(b.dlq()); l.Original.UUID != "bad" {
		b.Errorf("the letter is of %q", l.Original.UUID)
	}
	time.Sleep(100 * time.Millisecond) // for what comes again although it was placed
	if n := b.placed.Load(); n != 1 {
		b.Errorf("%d letters placed of one message", n)
	}
}

// Promise P3: the router is closed while messages wait for their next attempt. Nothing is set aside, and with the
// downstream back every message takes effect once.
func (b *bench) shutdownInBackoff() {
	var healthy atomic.Bool
	handle := func(msg *message.Message) ([]*message.Message, error) {
		if !healthy.Load() {
			return nil, errors.New("the downstream is down")
		}
		return nil, b.apply(msg)
	}
	patient := func(c *spillway.Config) {
		// within any ack deadline
		c.Retry.Backoff = always(20 * time.Second)
	}
	ids := []string{"a", "b", "c", "d", "e"}
	for i := range 3 {
		b.attempts.Store(0)
		stop := b.start(b.channel(patient), handle)
		if i == 0 {
			b.ids(ids...)
		}
		b.until("a message waits in its backoff", func() bool { return b.attempts.Load() >= 1 })
		stop()
	}
	if n := b.placed.Load(); n != 0 {
		b.Fatalf("%d letters after shutdowns", n)
	}
	healthy.Store(true)
	b.start(b.channel(), handle)
	b.untilApplied(ids...)
	if n := b.placed.Load(); n != 0 {
		b.Errorf("%d letters in the end", n)
	}
	b.wantOnce(ids...)
}

// Promise P4: messages whose handler panics, fails for good or fails for ever are set aside, and the good ones between
// them are handled.
func (b *bench) nothingWedges() {
	b.start(b.channel(), func(msg *message.Message) ([]*message.Message, error) {
		switch {
		case strings.HasPrefix(msg.UUID, "panic"):
			panic(msg.UUID)
		case strings.HasPrefix(msg.UUID, "permanent"):
			return nil, classify.Permanent(errNever)
		case strings.HasPrefix(msg.UUID, "unknown"):
			return nil, errNever
		}
		return nil, b.apply(msg)
	})
	b.ids("panic-1", "good-1", "permanent-1", "unknown-1", "good-2", "panic-2", "good-3")
	b.untilApplied("good-1", "good-2", "good-3")
	b.untilPlaced(4)
	got := map[string]bool{}
	for _, l := range b.letters(b.dlq(), 4) {
		got[l.Original.UUID] = true
	}
	for _, id := range []string{"panic-1", "permanent-1", "unknown-1", "panic-2"} {
		if !got[id] {
			b.Errorf("%q was not set aside", id)
		}
	}
	b.wantOnce("good-1", "good-2", "good-3")
}

// distinct is how many different payloads there are.
func distinct(messages []*message.Message) int {
	payloads := map[string]bool{}
	for _, msg := range messages {
		payloads[string(msg.Payload)] = true
	}
	return len(payloads)
}

// Promise P7: sent twice, with routers in between, set aside and redriven: each effect happens once, and the output has
// one id however often it is published.
func (b *bench) effectsOnce() {
	var healed atomic.Bool
	handle := func(msg *message.Message) ([]*message.Message, error) {
		if err := b.apply(msg); err != nil {
			return nil, err
		}
		if msg.UUID == "late" && !healed.Load() {
			return nil, classify.Permanent(errNever) // its effect is rolled back
		}
		out := message.NewMessage("", []byte("of "+msg.UUID))
		return []*message.Message{out}, nil
	}
	stop := b.start(b.channel(), handle)
	b.ids("a", "late", "a", "b")
	b.untilApplied("a", "b")
	b.untilPlaced(1)
	b.until("the duplicate was absorbed", func() bool { return b.duplicate.Load() >= 1 })
	stop()
	b.ids("b")
	healed.Store(true)
	b.start(b.channel(), handle)
	b.drain(b.dlq(), 1)
	b.untilApplied("late")
	b.until("the second duplicate was absorbed", func() bool { return b.duplicate.Load() >= 2 })
	b.wantOnce("a", "b", "late")
	// Recorded outputs are published again with each duplicate, and some pub/subs bring more of those than were sent.
	outputs := b.readUntil(b.outs, func(messages []*message.Message) bool {
		return len(messages) >= 5 && distinct(messages) == 3
	})
	ids := map[string]string{}
	for _, out := range outputs {
		if other, ok := ids[string(out.Payload)]; ok && other != out.UUID {
			b.Errorf("%q was published as %q and as %q", out.Payload, other, out.UUID)
		}
		ids[string(out.Payload)] = out.UUID
	}
	if len(ids) != 3 {
		b.Errorf("outputs: %v", ids)
	}
}

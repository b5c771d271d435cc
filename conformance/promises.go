package conformance

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/middleware"
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
	case poison.SourceInitializer:
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

// keep is a message as it was, apart from the one that goes through the handlers.
func keep(msg *message.Message) *message.Message {
	kept := message.NewMessageWithContext(msg.Context(), msg.UUID, bytes.Clone(msg.Payload))
	kept.Metadata = maps.Clone(msg.Metadata)
	return kept
}

// ruin does to a message what handlers should not.
func ruin(msg *message.Message) {
	for i := range msg.Payload {
		msg.Payload[i] = 'X'
	}
	msg.UUID, msg.Payload = "ruined", append(msg.Payload, "more"...)
	clear(msg.Metadata)
	msg.Metadata = nil
}

// wantSame checks that a message is the one that was sent: id, payload, and the producer's metadata.
func (b *bench) wantSame(what string, got, sent *message.Message) {
	b.Helper()
	if got.UUID != sent.UUID {
		b.Errorf("%s: the id is %.60q instead of %.60q", what, got.UUID, sent.UUID)
	}
	if !bytes.Equal(got.Payload, sent.Payload) {
		b.Errorf("%s: the payload is %.60q (%d bytes) instead of %.60q (%d bytes)", what, got.Payload, len(got.Payload), sent.Payload, len(sent.Payload))
	}
	want, have := poison.ProducersOwn(sent.Metadata), poison.ProducersOwn(got.Metadata)
	for key, value := range want {
		if other, ok := have[key]; !ok || other != value {
			b.Errorf("%s: metadata %.60q is %.60q (there: %t) instead of %.60q", what, key, other, ok, value)
		}
	}
	for key := range have {
		if _, ok := want[key]; !ok && !slices.Contains(b.target.BrokersOwn, key) {
			b.Errorf("%s: metadata %.60q was added", what, key)
		}
	}
}

// Promise P2: the handler ruins the message; the letter holds it as it arrived, and the redrive brings that back.
func (b *bench) originalSurvives() {
	sent := newMessage("original")
	sent.Metadata.Set("empty", "")
	b.survives(sent, func() { b.publish(sent.Copy()) })
}

// survives has a message ruined and fail, redrives it, and compares: with sent, or where that is nil with what the
// handler got first. A good message behind it is handled. It returns the message as it came back.
func (b *bench) survives(sent *message.Message, publish func()) (back *message.Message) {
	b.Helper()
	var mu sync.Mutex
	var first, last *message.Message
	var mended atomic.Bool
	stop := b.start(b.channel(), func(msg *message.Message) ([]*message.Message, error) {
		if msg.UUID == "good" {
			return nil, b.apply(msg)
		}
		mu.Lock()
		defer mu.Unlock()
		if mended.Load() {
			last = keep(msg)
			return nil, nil
		}
		if first == nil {
			first = keep(msg)
		}
		ruin(msg)
		return nil, classify.Permanent(errNever)
	})
	defer stop()
	publish()
	b.ids("good")
	b.untilPlaced(1)
	b.untilApplied("good")
	mended.Store(true)
	if sent == nil {
		sent = first
	} else if first != nil {
		b.wantSame("as it arrived", first, sent)
	}
	dead := b.dlq()
	if first == nil { // set aside before the handler saw it
		dead = b.invalid()
	}
	if report := b.drain(dead); report.Redriven != 1 {
		b.Fatalf("the redrive of %q reports %+v", dead, report)
	}
	cameBack := func() bool { mu.Lock(); defer mu.Unlock(); return last != nil }
	if first == nil {
		// It cannot be read this time either, unless the adapter brings back what could not be read in another form.
		b.until("it came back", func() bool { return b.placed.Load() >= 2 || cameBack() })
		if cameBack() {
			return last
		}
		l := b.letter(dead)
		if sent != nil {
			b.wantSame("the letter of the redriven message", l.Original, sent)
		}
		return l.Original
	}
	b.until("it came back", cameBack)
	b.wantSame("redriven", last, sent)
	return last
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
		c.Retry.Backoff = middleware.Backoff{Initial: 20 * time.Second, Jitter: middleware.NoJitter} // within any ack deadline
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
	var mended atomic.Bool
	handle := func(msg *message.Message) ([]*message.Message, error) {
		if err := b.apply(msg); err != nil {
			return nil, err
		}
		if msg.UUID == "late" && !mended.Load() {
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
	mended.Store(true)
	b.start(b.channel(), handle)
	b.drain(b.dlq())
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

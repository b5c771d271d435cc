package conformance

import (
	"bytes"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/poison"
)

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
		b.Errorf("%s: the payload is %.60q (%d bytes) instead of %.60q (%d bytes)", what, got.Payload, len(got.Payload),
			sent.Payload, len(sent.Payload))
	}
	want, have := poison.Inside().ProducerMetadata(sent.Metadata), poison.Inside().ProducerMetadata(got.Metadata)
	for key, value := range want {
		if other, ok := have[key]; (!ok || other != value) && !slices.Contains(b.target.BrokersOwn, key) {
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
	var healed atomic.Bool
	stop := b.start(b.channel(), func(msg *message.Message) ([]*message.Message, error) {
		if msg.UUID == "good" {
			return nil, b.apply(msg)
		}
		mu.Lock()
		defer mu.Unlock()
		if healed.Load() {
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
	healed.Store(true)
	if sent == nil {
		sent = first
	} else if first != nil {
		b.wantSame("as it arrived", first, sent)
	}
	dead := b.dlq()
	if first == nil { // set aside before the handler saw it
		dead = b.invalid()
	}
	if report := b.drain(dead, 1); report.Redriven != 1 {
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

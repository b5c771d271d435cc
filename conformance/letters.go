package conformance

import (
	"bytes"
	"context"
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
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/poison"
)

// initialize makes the dead-letter topics of the live topic, where no router does it at its start.
func (b *bench) initialize(ch *spillway.Channel) {
	b.Helper()
	if err := hidden.Of(ch.Queue()).Initialize(b.topic, handlerName); err != nil {
		b.Fatal(err)
	}
}

// failing starts a router whose handler fails with what fail returns, and applies the message where that is nil.
func (b *bench) failing(ch *spillway.Channel, fail func(id string) error) (stop func()) {
	b.Helper()
	return b.start(ch, func(msg *message.Message) ([]*message.Message, error) {
		if err := fail(msg.UUID); err != nil {
			return nil, err
		}
		return nil, b.apply(msg)
	})
}

type notFound struct{ what string }

func (e *notFound) Error() string { return e.what + " not found" }

// Feature D1: origin, failure, attempts and node are all in the letter, as text metadata.
func (b *bench) wholeHistory() {
	before := time.Now().Add(-time.Minute)
	b.failing(b.channel(func(c *spillway.Config) { c.Queue.Node = "node-1" }), func(string) error {
		return classify.Permanent(&notFound{"the order"}, classify.Reason("order_unknown"))
	})
	b.ids("lost-order")
	b.untilPlaced(1)
	msg := b.read(b.dlq(), 1)[0]
	for key, want := range map[string]string{
		poison.KeyOriginalTopic: b.topic, poison.KeyOriginalHandler: handlerName, poison.KeyOriginalMessageID: "lost-order",
		poison.KeyFailureClass: "permanent", poison.KeyFailureReason: "order_unknown",
		poison.KeyFailureDescription: "the order not found", poison.KeyFailureNode: "node-1", poison.KeyAttempts: "1",
	} {
		if got := msg.Metadata[key]; got != want {
			b.Errorf("%s is %q instead of %q", key, got, want)
		}
	}
	for _, key := range append([]string{poison.KeyFailureType, poison.KeyAttemptHistory}, b.target.Origins...) {
		if msg.Metadata[key] == "" && msg.Metadata[key+poison.Base64Suffix] == "" {
			b.Errorf("%s is missing", key)
		}
	}
	l, err := poison.Decode(msg)
	if err != nil {
		b.Fatal(err)
	}
	if f := l.Failure; f.FirstFailedAt.Before(before) || f.LastFailedAt.Before(f.FirstFailedAt) ||
		!strings.Contains(f.Type, "notFound") {
		b.Errorf("failed first %s, last %s, with type %q", f.FirstFailedAt, f.LastFailedAt, f.Type)
	}
}

// Feature D2: permanent errors and panics are set aside at once, invalid messages in a topic of their own or, where
// that does not take them, with the others; a discard is dropped and counted.
func (b *bench) classes() {
	var discards atomic.Int32
	ch := b.channel(func(c *spillway.Config) {
		c.Publisher = refusing{b.dead, func(topic string, msg *message.Message) error {
			if msg.UUID == "misfit" && topic == b.invalid() {
				return errors.New("not among the invalid ones")
			}
			return nil
		}}
		c.Queue.PublishBackoff = time.Millisecond
	})
	b.failing(ch, func(id string) error {
		switch id {
		case "permanent":
			return classify.Permanent(errNever)
		case "panic":
			panic("boom")
		case "invalid", "misfit":
			return classify.Invalid(errNever)
		case "discard":
			discards.Add(1)
			return classify.Discard(errNever)
		}
		return nil
	})
	b.ids("permanent", "panic", "invalid", "misfit", "discard", "good")
	b.untilApplied("good")
	b.untilPlaced(4)
	b.until("one is discarded", func() bool { return b.discarded.Load() == 1 })
	if n := discards.Load(); n != 1 {
		b.Errorf("tried %d times before the discard", n)
	}
	reasons := map[string]string{"permanent": classify.ReasonPermanent, "panic": classify.ReasonPanic,
		"misfit": classify.ReasonInvalid}
	for _, l := range b.letters(b.dlq(), 3) {
		if want := reasons[l.Original.UUID]; l.Failure.Reason != want || l.Failure.Attempts != 1 {
			b.Errorf("%q: reason %q after %d attempts", l.Original.UUID, l.Failure.Reason, l.Failure.Attempts)
		}
		if l.Original.UUID == "panic" && (!strings.Contains(l.Failure.Stack, "classes") || l.Failure.StackHash == "") {
			b.Errorf("a panic with stack %q and hash %q", l.Failure.Stack, l.Failure.StackHash)
		}
	}
	if l := b.letter(b.invalid()); l.Original.UUID != "invalid" || l.Failure.Attempts != 1 {
		b.Errorf("set aside as invalid: %q after %d attempts", l.Original.UUID, l.Failure.Attempts)
	}
}

// Feature D3: the names of dead-letter topics are the user's choice.
func (b *bench) naming() {
	for name, pattern := range map[string]string{
		b.topic + "-failed":                      "{topic}-failed",
		b.topic + "-billing-DLQ":                 "{topic}-billing-DLQ",
		b.topic + "_" + handlerName + "-dead":    "{topic}_{handler}-dead",
		"all-letters-of-" + b.topic + "-service": "all-letters-of-" + b.topic + "-service",
	} {
		ch := b.channel(func(c *spillway.Config) { c.Naming.DeadLetter = pattern }) // makes the topics itself
		placed := b.placed.Load()
		stop := b.failing(ch, func(string) error { return classify.Permanent(errNever) })
		b.ids(name)
		b.untilPlaced(placed + 1)
		stop()
		if l := b.letters(name, 1)[0]; l.Original.UUID == "" || l.Origin.Topic != b.topic {
			b.Errorf("in %q: letter of %q from %q", name, l.Original.UUID, l.Origin.Topic)
		}
	}
}

// Feature D4: a refusal is tried again; one for size is answered with a smaller letter; what the first destination does
// not take, the fallback does.
func (b *bench) fallback() {
	fallback := b.topic + "-fallback"
	b.create(fallback)
	var refusals atomic.Int32
	ch := b.channel(func(c *spillway.Config) {
		c.Publisher = refusing{b.dead, func(topic string, msg *message.Message) error {
			switch msg.UUID {
			case "twice":
				if refusals.Add(1) <= 2 {
					return errors.New("not now")
				}
			case "large":
				if len(msg.Metadata[poison.KeyFailureDescription]) > 1<<10 {
					return classify.ErrTooLarge
				}
			case "elsewhere":
				return errors.New("no such place")
			}
			return nil
		}}
		c.Queue.PublishBackoff = time.Millisecond
		c.Queue.Fallbacks = []poison.Sink{{Publisher: b.dead, Topic: fallback}}
	})
	b.failing(ch, func(id string) error {
		if id == "good" {
			return nil
		}
		return classify.Permanent(errors.New(strings.Repeat("long story ", 300)))
	})
	b.ids("twice", "large", "elsewhere", "good")
	b.untilPlaced(3)
	b.untilApplied("good")
	if l := b.letter(fallback); l.Original.UUID != "elsewhere" {
		b.Errorf("in the fallback: %q", l.Original.UUID)
	}
	for _, l := range b.letters(b.dlq(), 2) {
		if l.Original.UUID == "large" && len(l.Failure.Description) > 1<<10 {
			b.Errorf("the letter was not shrunk: a description of %d bytes", len(l.Failure.Description))
		}
	}
}

// Feature D5: dead-letter topics are there before the first message, or the router does not start and says which is
// not.
func (b *bench) missingDestination() {
	b.need("BadTopic", b.target.BadTopic != "")
	ch := b.channel(func(c *spillway.Config) {
		c.Queue.Naming = naming.Scheme{DeadLetter: b.target.BadTopic}
	})
	router := b.router()
	ch.Attach(router)
	sub := b.target.Subscriber(b.T, b.group)
	defer func() { // a router that did not start closes nothing
		if err := sub.Close(); err != nil {
			b.Error(err)
		}
	}()
	router.AddConsumerHandler(handlerName, b.topic, sub, func(*message.Message) error { return nil })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := router.Run(ctx)
	if err == nil || !strings.Contains(err.Error(), b.target.BadTopic) {
		b.Errorf("with a destination that cannot be, Router.Run returned %v", err)
	}
}

// Feature D6: an error of a megabyte adds no more than the budget.
func (b *bench) budget() {
	const budget = poison.MaxAdded
	b.failing(b.channel(), func(string) error {
		return classify.Permanent(errors.New(strings.Repeat("é", 1<<19)))
	})
	b.ids("verbose")
	b.untilPlaced(1)
	msg := b.read(b.dlq(), 1)[0]
	own, added := inside.Poison.ProducerMetadata(msg.Metadata), 0
	for key, value := range msg.Metadata {
		if _, producers := own[key]; !producers {
			added += len(key) + len(value)
		}
	}
	if added > budget || !strings.Contains(msg.Metadata[poison.KeyFailureDescription], "é") {
		b.Errorf("%d bytes were added of a budget of %d", added, budget)
	}
}

// noting counts what was taken.
type noting struct {
	message.Publisher
	taken *atomic.Int32
}

func (p noting) Publish(topic string, messages ...*message.Message) error {
	err := p.Publisher.Publish(topic, messages...)
	if err == nil {
		p.taken.Add(int32(len(messages)))
	}
	return err
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
		b.Errorf("%s: the payload is %.60q (%d bytes) instead of %.60q (%d bytes)", what, got.Payload, len(got.Payload),
			sent.Payload, len(sent.Payload))
	}
	want, have := inside.Poison.ProducerMetadata(sent.Metadata), inside.Poison.ProducerMetadata(got.Metadata)
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

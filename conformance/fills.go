package conformance

import (
	"fmt"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
	"github.com/watermill-spillway/spillway/poison"
)

// bound is the size of the largest message where the pub/sub has no bound: then the row gives it one.
const bound = 64 << 10

// bounded is pub, or pub with a bound if the pub/sub has none.
func (b *bench) bounded(pub message.Publisher) message.Publisher {
	if b.target.MaxMessage > 0 {
		return pub
	}
	return refusing{pub, func(_ string, msg *message.Message) error {
		size := len(msg.UUID) + len(msg.Payload)
		for key, value := range msg.Metadata {
			size += len(key) + len(value)
		}
		if size > bound {
			return fmt.Errorf("%d bytes: %w", size, classify.ErrTooLarge)
		}
		return nil
	}}
}

// filling publishes the largest message that the live topic takes, and returns the size of its payload.
func (b *bench) filling() (size int) {
	b.Helper()
	most := b.target.MaxMessage
	if most == 0 {
		most = bound - len("full")
	}
	for spare := 0; spare < most/2; spare = max(16, spare+spare/4) {
		msg := message.NewMessage("full", make([]byte, most-spare))
		err := b.live.Publish(b.topic, msg)
		if err == nil {
			return len(msg.Payload)
		}
		if !(*classify.Classifier)(nil).IsTooLarge(err) {
			b.Fatalf("%d bytes are refused, and not for their size: %v", len(msg.Payload), err)
		}
	}
	b.Fatal("the live topic takes no message of half of Target.MaxMessage")
	return 0
}

// Promises P1, P4: a message that fills the broker's limit ends, although no letter and no stage has room for what they
// add, and those behind it go on. What has room for the count of its redrives comes back.
func (b *bench) fillingMessages() {
	b.variant("letters", func(b *bench) { b.fills(b.start, func(*spillway.Config) {}, classify.Permanent(errNever)) })
	b.variant("stages", func(b *bench) { b.fills(b.startStaged, b.staged(shortStage), errNotYet) })
	b.variant("delay store", func(b *bench) {
		staged, kept := b.staged(shortStage), stored(b.ownDelays())
		b.fills(b.startStaged, func(c *spillway.Config) { staged(c); kept(c) }, errNotYet)
	})
}

type starting func(*spillway.Channel, message.HandlerFunc, ...func(*message.Router)) (stop func())

// fills has the message fail with failure, until it comes out of a stage or was placed.
func (b *bench) fills(start starting, change func(*spillway.Config), failure error) {
	var runs atomic.Int32
	start(b.channel(change, func(c *spillway.Config) {
		c.Publisher = b.bounded(c.Publisher)
		if c.Stages != nil {
			c.Stages.Publisher = b.bounded(c.Stages.Publisher)
		}
	}), func(msg *message.Message) ([]*message.Message, error) {
		if _, staged := msg.Metadata[poison.KeyRetryStage]; msg.UUID == "full" && !staged && b.placed.Load() == 0 {
			runs.Add(1)
			return nil, failure
		}
		return nil, b.apply(msg)
	})
	size := b.filling()
	b.ids("good")
	b.untilApplied("good")
	b.until("the message ends", func() bool { return b.placed.Load() > 0 || b.effects()["full"] > 0 })
	if b.placed.Load() == 0 {
		return
	}
	msg := b.read(b.dlq(), 1)[0]
	if msg.UUID != "full" || len(msg.Payload) != size || runs.Load() > 3 {
		b.Errorf("placed %q with %d bytes after %d runs, of %d bytes", msg.UUID, len(msg.Payload), runs.Load(), size)
	}
	if !poison.Inside().IsLetter(msg) {
		return
	}
	if report := b.drainThrough(b.bounded(b.live), b.dlq(), 1); report.Redriven != 1 {
		b.Errorf("the redrive reports %+v", report)
	}
	b.untilApplied("full")
}

// Promise P2: a letter brings back metadata and ids that the pub/sub would change on their way, or lose.
func (b *bench) lettersOfHostile() {
	all := hostileMetadata()
	for name, msg := range hostileContents() {
		all[name] = msg
	}
	ch := b.channel()
	b.initialize(ch)
	sent := map[string]*message.Message{}
	for name, msg := range all {
		if b.target.row.pinned(name) {
			continue
		}
		placed := msg.Copy()
		placed.SetContext(foreign.Within(b.Context(), handlerName, b.topic))
		if err := ch.Queue().Place(placed, classify.Permanent(fmt.Errorf("%w: %s", errNever, name))); err != nil {
			b.Errorf("%s: %v", name, err)
			continue
		}
		sent[string(msg.Payload)] = msg
	}
	for _, l := range b.letters(b.dlq(), len(sent)) {
		msg := sent[string(l.Original.Payload)]
		if msg == nil {
			b.Errorf("a letter of a payload of %d bytes, %.60q", len(l.Original.Payload), l.Original.Payload)
			continue
		}
		b.wantSame(fmt.Sprintf("the letter %.60q", l.Failure.Description), l.Original, msg)
	}
}

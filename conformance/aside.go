package conformance

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	watermillmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
)

// Feature D7: a letter that Watermill's PoisonQueue wrote is read and comes back, and its keys can be written beside
// ours.
func (b *bench) watermillLetters() {
	ch := b.channel(func(c *spillway.Config) { c.Queue.WatermillKeys = true })
	b.initialize(ch)
	var written atomic.Int32
	old, err := watermillmiddleware.PoisonQueue(noting{b.dead, &written}, b.dlq())
	if err != nil {
		b.Fatal(err)
	}
	router := b.router()
	router.AddConsumerHandler(handlerName, b.topic, b.target.Subscriber(b.T, b.group), func(*message.Message) error {
		return errNever
	}).AddMiddleware(old)
	stop := b.run(router)
	b.ids("old")
	b.until("Watermill has set it aside", func() bool { return written.Load() == 1 })
	stop()
	b.start(ch, func(msg *message.Message) ([]*message.Message, error) {
		if msg.UUID == "new" {
			return nil, classify.Permanent(errNever)
		}
		if msg.Metadata["reason_poisoned"] != "" {
			b.Errorf("redriven with %v", msg.Metadata)
		}
		return nil, b.apply(msg)
	})
	if report := b.drain(b.dlq(), 1); report.Redriven != 1 {
		b.Errorf("%+v", report)
	}
	b.untilApplied("old")
	b.ids("new")
	b.untilPlaced(1)
	if m := b.find(b.dlq(), "new").Metadata; m["reason_poisoned"] == "" || m["topic_poisoned"] != b.topic ||
		m["handler_poisoned"] != handlerName || m["subscriber_poisoned"] == "" {
		b.Errorf("Watermill's keys are missing: %v", m)
	}
}

// Feature D8: what no unmarshaler can read is set aside with its bytes, and what is behind it is handled.
func (b *bench) unreadable() {
	b.failing(b.channel(), func(id string) error {
		if id != "good" {
			b.Errorf("the handler got %q", id)
		}
		return nil
	})
	bad := newMessage("bad")
	bad.Payload = []byte(Unreadable)
	b.publish(bad)
	b.ids("good")
	b.untilApplied("good")
	b.untilPlaced(1)
	l := b.letter(b.invalid())
	if l.Failure.Reason != classify.ReasonUnmarshal || string(l.Original.Payload) != Unreadable {
		b.Errorf("set aside with reason %q and payload %.80q", l.Failure.Reason, l.Original.Payload)
	}
	if l.Original.UUID != "bad" {
		b.Errorf("set aside with id %q", l.Original.UUID)
	}
}

// Feature D11: what a guard stops has its reason; what it just lets pass is handled, and its output carries the count
// on.
func (b *bench) guards() {
	ch := b.channel(func(c *spillway.Config) {
		c.Guard = spillway.GuardConfig{Required: []string{"tenant"}, ExpiresKey: "expires", MaxHops: 3}
	})
	b.start(ch, b.producing(func(id string) error {
		if id == "rejected" {
			return classify.Permanent(errors.New("this order is another shop's"), classify.Reason("not_ours"))
		}
		return nil
	}))
	reasons := map[string]string{
		"rejected": "not_ours", "expired": "ttl_expired", "circling": "max_hop_count_exceeded",
		"incomplete": "missing_metadata",
	}
	for id := range reasons {
		msg := newMessage(id)
		switch id {
		case "expired":
			msg.Metadata.Set("expires", "2001-02-03T04:05:06Z")
		case "circling":
			msg.Metadata.Set("x-hop-count", "4")
		case "incomplete":
			delete(msg.Metadata, "tenant")
		}
		b.publish(msg)
	}
	good := newMessage("good")
	good.Metadata.Set("expires", time.Now().Add(time.Hour).Format(time.RFC3339))
	good.Metadata.Set("x-hop-count", "3")
	b.publish(good)
	b.untilApplied("good")
	b.untilPlaced(4)
	letters := append(b.letters(b.dlq(), 3), b.letter(b.invalid()))
	for _, l := range letters {
		if want := reasons[l.Original.UUID]; l.Failure.Reason != want {
			b.Errorf("%q: reason %q instead of %q", l.Original.UUID, l.Failure.Reason, want)
		}
	}
	b.wantOnce("good")
	if out := b.read(b.outs, 1)[0]; out.Metadata["x-hop-count"] != "4" {
		b.Errorf("an output with a count of %q", out.Metadata["x-hop-count"])
	}
}

// Feature D12: a handler of the dead-letter topic that fails has its letter parked, not dead-lettered again.
func (b *bench) parked() {
	ch := b.channel()
	b.initialize(ch)
	b.start(ch, func(msg *message.Message) ([]*message.Message, error) {
		return nil, classify.Permanent(errNever)
	}, func(router *message.Router) {
		router.AddConsumerHandler("undertaker", b.dlq(), b.target.Subscriber(b.T, b.group+"-undertaker"),
			func(*message.Message) error {
				return classify.Permanent(errors.New("cannot bury it"))
			})
	})
	b.ids("twice-dead")
	b.untilPlaced(2)
	if l := b.letter(b.target.Naming.ParkedTopic(b.dlq())); l.Original.UUID != "twice-dead" || l.Origin.Topic != b.topic {
		b.Errorf("parked: %q from %q", l.Original.UUID, l.Origin.Topic)
	}
}

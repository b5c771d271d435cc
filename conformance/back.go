package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	watermillmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

// setAside starts a router that fails for every message until the returned switch is on, and sets n of them aside.
func (b *bench) setAside(n int) (healed *atomic.Bool, ids []string) {
	b.Helper()
	healed = new(atomic.Bool)
	b.failing(b.channel(), func(string) error {
		if healed.Load() {
			return nil
		}
		return classify.Permanent(errNever)
	})
	for i := range n {
		ids = append(ids, fmt.Sprintf("id-%02d", i))
	}
	b.ids(ids...)
	b.untilPlaced(int32(n))
	return healed, ids
}

// drain brings back the letters in a dead-letter topic, of which at least n wait there or are about to: one that is
// written in the transaction of its message is seen by others when that is acknowledged, after the hook that told of
// it.
func (b *bench) drain(topic string, n int, change ...func(*redrive.DrainTopicConfig)) redrive.Report {
	b.Helper()
	return b.drainThrough(b.live, topic, n, change...)
}

// drainThrough is drain with another publisher than that of the live topic.
func (b *bench) drainThrough(live message.Publisher, topic string, n int,
	change ...func(*redrive.DrainTopicConfig)) redrive.Report {
	b.Helper()
	group := "drain-" + topic
	sub := b.target.Subscriber(b.T, group)
	defer func() {
		if err := sub.Close(); err != nil {
			b.Error(err)
		}
	}()
	config := redrive.DrainTopicConfig{Topic: topic, Park: b.dead, IdleAfter: 3 * time.Second, FromBeginning: true}
	config.Naming = b.target.Naming
	config.Allow, config.By = []string{b.topic}, "conformance"
	if b.target.Backlog != nil {
		// a busy server may be slow to give what it has
		config.Backlog, config.IdleAfter = b.target.Backlog(b.T, group), patience/2
		b.until(fmt.Sprintf("%d letters wait in %q", n, topic), func() bool {
			waiting, err := config.Backlog(b.Context(), topic)
			return err == nil && waiting >= n
		})
	}
	for _, f := range change {
		f(&config)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	report, err := redrive.DrainTopic(ctx, sub, live, config)
	if err != nil {
		b.Fatalf("drain %q: %v (%+v)", topic, err, report)
	}
	return report
}

// Feature V1: a drain brings all letters back to their topic; a redrive handler on a router brings each back as it
// comes.
func (b *bench) redriven() {
	healed, ids := b.setAside(3)
	healed.Store(true)
	if report := b.drain(b.dlq(), 3); report.Redriven != 3 || report.Taken != 3 {
		b.Errorf("%+v", report)
	}
	b.untilApplied(ids...)
	b.wantOnce(ids...)

	h, err := redrive.NewHandler(b.live,
		redrive.HandlerConfig{Rules: redrive.Rules{Allow: []string{b.topic}, Naming: b.target.Naming}, Park: b.dead,
			MinWait: -1})
	if err != nil {
		b.Fatal(err)
	}
	healed.Store(false)
	b.ids("later")
	b.untilPlaced(4)
	healed.Store(true)
	router := b.router()
	router.AddPlugin(h.Plugin(b.target.Subscriber(b.T, "redrive-"+b.dlq()), b.dlq()))
	b.run(router)
	b.untilApplied("later")
}

// Feature V2: letters come back no faster than the rate. The first one is seen when its publish returns, and what that
// took is made up for by the turns behind it: up to a turn and the 100 ms by which one may be late, as
// TestHandler_rateOfStalledPublisher shows.
func (b *bench) redriveRate() {
	const n, rate = 11, 20
	healed, ids := b.setAside(n)
	healed.Store(true)
	var first, last time.Time
	b.drain(b.dlq(), n, func(c *redrive.DrainTopicConfig) {
		c.Rate = rate
		c.Hooks.OnRedrive = func(_ context.Context, _ poison.Letter, _ string) {
			if last = time.Now(); first.IsZero() {
				first = last
			}
		}
	})
	b.untilApplied(ids...)
	if took, least := last.Sub(first), (n-2)*time.Second/rate-100*time.Millisecond; took < least {
		b.Errorf("%d letters in %s, at %d a second at least %s were due", n, took, rate, least)
	}
}

// Features V3, D16: each redrive is counted on the message, and after the last one that is allowed a handler
// quarantines the letter, in a topic that the handler's start made sure of.
func (b *bench) quarantine() {
	b.setAside(1)
	for i := range int32(2) {
		limited := func(c *redrive.DrainTopicConfig) { c.MaxRedrives = 2 }
		if report := b.drain(b.dlq(), 1, limited); report.Redriven != 1 {
			b.Fatalf("redrive %d: %+v", i+1, report)
		}
		b.untilPlaced(i + 2)
	}
	h, err := redrive.NewHandler(b.live,
		redrive.HandlerConfig{Rules: redrive.Rules{Allow: []string{b.topic}, MaxRedrives: 2, Naming: b.target.Naming},
			Park: b.dead})
	if err != nil {
		b.Fatal(err)
	}
	router := b.router()
	router.AddPlugin(h.Plugin(b.target.Subscriber(b.T, "drain-"+b.dlq()), b.dlq()))
	b.run(router)
	l := b.letter(b.target.Naming.QuarantineTopic(b.dlq()))
	if l.Redrive.Count != 2 || l.Redrive.By != "conformance" || l.Redrive.At.IsZero() {
		b.Errorf("quarantined: %+v", l.Redrive)
	}
}

// Feature V4: what comes back has no failure on it, and its origin and history still.
func (b *bench) stripped() {
	var back atomic.Pointer[message.Message]
	var healed atomic.Bool
	b.start(b.channel(), func(msg *message.Message) ([]*message.Message, error) {
		if !healed.Load() {
			return nil, classify.Permanent(errNever)
		}
		back.Store(keep(msg))
		return nil, nil
	})
	b.ids("returning")
	b.untilPlaced(1)
	healed.Store(true)
	b.drain(b.dlq(), 1)
	b.until("it came back", func() bool { return back.Load() != nil })
	msg := back.Load()
	for _, key := range []string{
		poison.KeyFailureClass, poison.KeyFailureReason, poison.KeyFailureDescription, poison.KeyFailureType,
		poison.KeyFailureStack, poison.KeyFailureStackHash, poison.KeyFailureNode, poison.KeyAttempts,
		poison.KeyFirstFailedAt, poison.KeyLastFailedAt,
	} {
		if value, ok := msg.Metadata[key]; ok {
			b.Errorf("it came back with %s %q", key, value)
		}
	}
	for _, key := range append([]string{
		poison.KeyOriginalTopic, poison.KeyOriginalHandler, poison.KeyOriginalMessageID,
		poison.KeyAttemptHistory, poison.KeyRedrivenAt, poison.KeyRedrivenBy, poison.KeyRedriveID,
	}, b.target.Origins...) {
		if msg.Metadata[key] == "" && msg.Metadata[key+poison.Base64Suffix] == "" {
			b.Errorf("it came back without %s", key)
		}
	}
	if msg.Metadata[poison.KeyRedriveCount] != "1" {
		b.Errorf("it came back with a count of %q", msg.Metadata[poison.KeyRedriveCount])
	}
}

// Features V5, V8, D16: a letter whose origin names a topic that is not allowed is parked, and so is what the filter
// does not choose, in a topic that the drain made sure of. The drain goes on behind both.
func (b *bench) allowList() {
	b.create(b.dlq())
	forged := newMessage("forged")
	forged.Metadata.Set(poison.KeyOriginalTopic, b.topic+"-payroll") // begins like one that is allowed
	forged.Metadata.Set(poison.KeyFailureClass, "permanent")
	chosen := func(c *redrive.DrainTopicConfig) { c.Filter.Reasons = []string{"chosen"} }
	other := newMessage("other")
	other.Metadata.Set(poison.KeyFailureClass, "permanent")
	forged.Metadata.Set(poison.KeyFailureReason, "chosen")
	for _, msg := range []*message.Message{other, forged} {
		if err := b.dead.Publish(b.dlq(), msg); err != nil {
			b.Fatal(err)
		}
	}
	if report := b.drain(b.dlq(), 2, chosen); report.Refused != 1 || report.Parked != 1 || report.Redriven != 0 {
		b.Errorf("%+v", report)
	}
	for _, msg := range b.read(b.target.Naming.ParkedTopic(b.dlq()), 2) {
		if msg.UUID == "forged" && msg.Metadata[poison.KeyOriginalTopic] != b.topic+"-payroll" ||
			msg.UUID != "forged" && msg.UUID != "other" {
			b.Errorf("parked: %q %v", msg.UUID, msg.Metadata)
		}
	}
}

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

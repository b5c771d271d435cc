package redrive_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

func runRouter(t testing.TB, add func(*message.Router)) *message.Router {
	t.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: deadline}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	add(router)
	done := make(chan error, 1)
	go func() { done <- router.Run(context.Background()) }()
	t.Cleanup(func() {
		if err := errors.Join(router.Close(), <-done); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-router.Running():
	case <-time.After(deadline):
		t.Fatal("the router does not run")
	}
	return router
}

func newHandler(t testing.TB, c redrive.HandlerConfig) *redrive.Handler {
	t.Helper()
	if c.Allow == nil {
		c.Allow = []string{"orders"}
	}
	if c.MinWait == 0 { // what just failed would rest
		c.MinWait = -1
	}
	h, err := redrive.NewHandler(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Features V1, V3, V4, V5, V8, promises P1, P2: what is chosen goes back to its topic; all else is parked unchanged, or
// quarantined with the reason, and acked.
func TestHandler_router(t *testing.T) {
	pubsub := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	live, park := &outbox{}, &outbox{}
	h := newHandler(t, redrive.HandlerConfig{
		Publisher: live, Park: park, By: "night shift", Filter: redrive.Filter{Handlers: []string{"billing"}, DeadLetterTopics: []string{"orders.dlq"}},
	})
	runRouter(t, func(r *message.Router) { r.AddPlugin(h.Plugin(pubsub, "orders.dlq")) })

	in := map[string]*message.Message{
		"good":    letter("good", "a"),
		"other":   letter("other", "b", func(l *poison.Letter) { l.Origin.Handler = "mailer" }),
		"forged":  letter("forged", "c", from("admin")),
		"plain":   message.NewMessage("plain", []byte("d")),
		"thrice":  letter("thrice", "e", redrivenTimes(3)),
		"negated": letter("negated", "f"),
	}
	in["negated"].Metadata.Set(poison.KeyRedriveCount, "-7")
	for _, msg := range in {
		publish(t, pubsub, "orders.dlq", msg)
	}
	eventually(t, "all six are placed", func() bool { return len(live.all())+len(park.all()) == 6 })

	for _, p := range live.all() {
		m := p.msg.Metadata
		if p.topic != "orders" || m[poison.KeyRedriveCount] != "1" || m[poison.KeyRedrivenBy] != "night shift" || poison.IsLetter(p.msg) ||
			m[poison.KeyOriginalTopic] != "orders" || m["tenant"] != "blue" || string(p.msg.Payload) != string(in[p.msg.UUID].Payload) {
			t.Errorf("%s to %s: %v", p.msg.UUID, p.topic, m)
		}
		if p.msg.UUID != "good" && p.msg.UUID != "negated" {
			t.Errorf("%s went to %s", p.msg.UUID, p.topic)
		}
	}
	for _, p := range park.all() {
		want := in[p.msg.UUID]
		if p.msg.UUID == "thrice" {
			want = want.Copy()
			want.Metadata.Set(poison.KeyFailureReason, classify.ReasonMaxRedrives)
			if p.topic != "orders.dlq.quarantine" || p.topic != poison.QuarantineTopic("orders.dlq") || !p.msg.Equals(want) {
				t.Errorf("quarantined in %s: %v", p.topic, p.msg.Metadata)
			}
			continue
		}
		if p.topic != "orders.dlq.parked" || !p.msg.Equals(want) {
			t.Errorf("%s was parked in %s: %v", p.msg.UUID, p.topic, p.msg.Metadata)
		}
	}
}

// Promises P1, P4: what the live publisher refuses is parked; only when that fails too is the letter given back.
func TestHandler_publisherDown(t *testing.T) {
	var parked []error
	var errs int
	park := &outbox{}
	c := redrive.HandlerConfig{
		Publisher: &outbox{before: refuse}, Park: park, PublishAttempts: 2,
		Hooks: redrive.Hooks{
			OnParked:       func(_ context.Context, _ poison.Letter, why error) { parked = append(parked, why) },
			OnPublishError: func(context.Context, poison.Letter, error) { errs++ },
		},
	}
	if err := newHandler(t, c).Handle(letter("1", "a")); err != nil {
		t.Fatal(err)
	}
	if p := park.all(); len(p) != 1 || p[0].topic != "unknown.parked" || len(parked) != 1 || !errors.Is(parked[0], errDown) || errs != 2 {
		t.Errorf("%v %v %d", p, parked, errs)
	}
	c.Park = &outbox{before: func(string, *message.Message) error { panic("park") }}
	if err := newHandler(t, c).Handle(letter("1", "a")); !errors.Is(err, errDown) || !strings.Contains(err.Error(), "unknown.parked") {
		t.Errorf("%v", err)
	}
	if len(parked) != 1 {
		t.Error("a letter that was not parked is told as parked")
	}
	if err := newHandler(t, c).Handle(letter("1", "a", redrivenTimes(9))); err == nil {
		t.Error("a quarantine that fails is an error")
	}
}

// Promise P3: a message whose context ends in the wait for its turn is given back, and nothing is published.
func TestHandler_givesBack(t *testing.T) {
	live, park := &outbox{}, &outbox{}
	h := newHandler(t, redrive.HandlerConfig{Publisher: live, Park: park, Rate: 0.001})
	if err := h.Handle(letter("1", "a")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 2)
	for i := range 2 { // one waits for the rate, one for its place
		msg := letter(fmt.Sprint(i+2), "a")
		msg.SetContext(ctx)
		go func() { errs <- h.Handle(msg) }()
	}
	time.AfterFunc(20*time.Millisecond, cancel)
	for range 2 {
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if len(live.all()) != 1 || len(park.all()) != 0 {
		t.Errorf("published %d, parked %d", len(live.all()), len(park.all()))
	}
}

// Feature D12: under a router-level queue, a redrive handler that fails is not dead-lettered into .dlq.dlq.
func TestHandler_underQueue(t *testing.T) {
	pubsub := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	dead, park := &outbox{}, &outbox{}
	var refusals atomic.Int64
	park.before = func(string, *message.Message) error {
		if refusals.Add(1) <= 4 {
			return errDown
		}
		return nil
	}
	queue, err := poison.NewQueue(dead, poison.QueueConfig{})
	if err != nil {
		t.Fatal(err)
	}
	h := newHandler(t, redrive.HandlerConfig{Publisher: &outbox{before: refuse}, Park: park, PublishAttempts: 1})
	runRouter(t, func(r *message.Router) {
		r.AddMiddleware(queue.Middleware)
		r.AddPlugin(h.Plugin(pubsub, "orders.dlq"))
		r.AddConsumerHandler("billing", "orders", pubsub, func(*message.Message) error { return errDown })
	})
	publish(t, pubsub, "orders.dlq", letter("1", "a"))
	eventually(t, "the letter is parked after all", func() bool { return len(park.all()) == 1 })
	if n := len(dead.all()); n != 0 || refusals.Load() != 5 {
		t.Errorf("%d letters of a letter, %d refusals", n, refusals.Load())
	}
	publish(t, pubsub, "orders", message.NewMessage("2", nil))
	eventually(t, "the queue still protects the live handler", func() bool { return len(dead.all()) == 1 })
	if topic := dead.all()[0].topic; topic != "orders.dlq" {
		t.Errorf("dead-lettered in %s", topic)
	}
}

// Promise P6: through a router and back, a letter that always fails goes round MaxRedrives times and then rests. The
// context of the redrive does not leak into the live handler, even where the pub/sub hands contexts on.
func TestHandler_loopEnds(t *testing.T) {
	live := gochannel.NewGoChannel(gochannel.Config{PreserveContext: true}, watermill.NopLogger{})
	dead := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	park := &outbox{}
	var handled atomic.Int64
	queue, err := poison.NewQueue(dead, poison.QueueConfig{})
	if err != nil {
		t.Fatal(err)
	}
	h := newHandler(t, redrive.HandlerConfig{Publisher: live, Park: park, MaxRedrives: 2})
	runRouter(t, func(r *message.Router) {
		r.AddMiddleware(queue.Middleware)
		r.AddPlugin(h.Plugin(dead, "orders.dlq"))
		r.AddConsumerHandler("billing", "orders", live, func(msg *message.Message) error {
			if chain.IsOwn(msg.Context()) {
				t.Error("the live message counts as one of Spillway's own")
			}
			handled.Add(1)
			return classify.Permanent(errDown)
		})
	})
	publish(t, live, "orders", message.NewMessage("1", []byte("a")))
	eventually(t, "the letter is quarantined", func() bool { return len(park.all()) == 1 })
	p := park.all()[0]
	if p.topic != "orders.dlq.quarantine" || handled.Load() != 3 || p.msg.Metadata.Get(poison.KeyRedriveCount) != "2" {
		t.Errorf("in %s after %d: %v", p.topic, handled.Load(), p.msg.Metadata)
	}
}

// Features D7, V3: a letter of Watermill's PoisonQueue that came back too often keeps its story in our keys.
func TestHandler_quarantinesWatermillLetter(t *testing.T) {
	park := &outbox{}
	msg := message.NewMessage("1", []byte("a"))
	maps.Copy(msg.Metadata, message.Metadata{"reason_poisoned": "boom", "topic_poisoned": "orders", poison.KeyRedriveCount: "3"})
	if err := newHandler(t, redrive.HandlerConfig{Publisher: &outbox{}, Park: park}).Handle(msg); err != nil {
		t.Fatal(err)
	}
	l, err := poison.Decode(park.all()[0].msg)
	if err != nil || l.Failure.Reason != classify.ReasonMaxRedrives || l.Failure.Description != "boom" || l.Origin.Topic != "orders" {
		t.Errorf("%+v, %v", l, err)
	}
}

// Promises P1, P6: an unsafe configuration is an error that names the field.
func TestHandler_construction(t *testing.T) {
	good := redrive.HandlerConfig{Publisher: &outbox{}, Park: &outbox{}, Allow: []string{"orders"}}
	for field, change := range map[string]func(*redrive.HandlerConfig){
		"HandlerConfig.Publisher":       func(c *redrive.HandlerConfig) { c.Publisher = nil },
		"HandlerConfig.Park":            func(c *redrive.HandlerConfig) { c.Park = (*outbox)(nil) },
		"HandlerConfig.Allow":           func(c *redrive.HandlerConfig) { c.Allow = nil },
		"HandlerConfig.To":              func(c *redrive.HandlerConfig) { c.To = "admin" },
		"HandlerConfig.Rate":            func(c *redrive.HandlerConfig) { c.Rate = -1 },
		"HandlerConfig.Filter.Statuses": func(c *redrive.HandlerConfig) { c.Filter.MaxSeq = 1 },
	} {
		c := good
		change(&c)
		if _, err := redrive.NewHandler(c); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := redrive.NewHandler(redrive.HandlerConfig{}); err == nil {
		t.Error("the zero configuration is an error")
	}
}

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
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

func newHandler(t testing.TB, live message.Publisher, c redrive.HandlerConfig) *redrive.Handler {
	t.Helper()
	if c.Allow == nil {
		c.Allow = []string{"orders"}
	}
	if c.MinWait == 0 { // what just failed would rest
		c.MinWait = -1
	}
	return testkit.Must(redrive.NewHandler(live, c))
}

// Promises P1, P4: what the live publisher refuses is parked; only when that fails too is the letter given back.
func TestHandler_publisherDown(t *testing.T) {
	var parked []error
	var errs int
	park := &outbox{}
	c := redrive.HandlerConfig{Rules: redrive.Rules{PublishAttempts: 2}, Park: park}
	c.Hooks.OnParked = func(_ context.Context, _ poison.Letter, why error) { parked = append(parked, why) }
	c.Hooks.OnPublishError = func(context.Context, poison.Letter, error) { errs++ }
	live := &outbox{Before: refuse}
	testkit.NoError(t, newHandler(t, live, c).Handle(letter("1", "a")))
	p := park.All()
	testkit.Check(t, len(p) == 1 && p[0].Topic == "unknown.parked" && len(parked) == 1 &&
		errors.Is(parked[0], errDown) && errs == 2, "%v %v %d", p, parked, errs)
	c.Park = &outbox{Before: func(string, *message.Message) error { panic("park") }}
	err := newHandler(t, live, c).Handle(letter("1", "a"))
	testkit.Check(t, errors.Is(err, errDown) && strings.Contains(err.Error(), "unknown.parked"), "%v", err)
	testkit.Check(t, len(parked) == 1, "a letter that was not parked is told as parked")
	testkit.Check(t, newHandler(t, live, c).Handle(letter("1", "a", redrivenTimes(9))) != nil,
		"a quarantine that fails is an error")
}

// Promise P3: a message whose context ends in the wait for its turn is given back, and nothing is published.
func TestHandler_givesBack(t *testing.T) {
	live, park := &outbox{}, &outbox{}
	h := newHandler(t, live, redrive.HandlerConfig{Rules: redrive.Rules{Rate: 0.001}, Park: park})
	testkit.NoError(t, h.Handle(letter("1", "a")))
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 2)
	for i := range 2 { // one waits for the rate, one for its place
		msg := letter(fmt.Sprint(i+2), "a")
		msg.SetContext(ctx)
		go func() { errs <- h.Handle(msg) }()
	}
	time.AfterFunc(20*time.Millisecond, cancel)
	for range 2 {
		testkit.Is(t, <-errs, context.Canceled)
	}
	testkit.Equal(t, "published", len(live.All()), 1)
	testkit.Equal(t, "parked", len(park.All()), 0)
}

// Promise P6: what always fails goes round MaxRedrives times. No context of the redrive reaches the live handler.
func TestHandler_loopEnds(t *testing.T) {
	live := gochannel.NewGoChannel(gochannel.Config{PreserveContext: true}, watermill.NopLogger{})
	dead := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	park := &outbox{}
	var handled atomic.Int64
	queue := testkit.Must(poison.NewQueue(dead, poison.QueueConfig{}))
	h := newHandler(t, live, redrive.HandlerConfig{Rules: redrive.Rules{MaxRedrives: 2}, Park: park})
	testkit.RunRouter(t, watermill.NopLogger{}, func(r *message.Router) {
		r.AddMiddleware(queue.Middleware)
		r.AddPlugin(h.Plugin(dead, "orders.dlq"))
		r.AddConsumerHandler("billing", "orders", live, func(msg *message.Message) error {
			testkit.Check(t, !chain.IsOwn(msg.Context()), "the live message counts as one of Spillway's own")
			handled.Add(1)
			return classify.Permanent(errDown)
		})
	})
	publish(t, live, "orders", message.NewMessage("1", []byte("a")))
	eventually(t, "the letter is quarantined", func() bool { return len(park.All()) == 1 })
	p := park.All()[0]
	testkit.Check(t, p.Topic == "orders.dlq.quarantine" && handled.Load() == 3 &&
		p.Msg.Metadata.Get(poison.KeyRedriveCount) == "2",
		"in %s after %d: %v", p.Topic, handled.Load(), p.Msg.Metadata)
}

// Features D7, V3: a letter of Watermill's PoisonQueue that came back too often keeps its story in our keys.
func TestHandler_quarantinesWatermillLetter(t *testing.T) {
	park := &outbox{}
	msg := message.NewMessage("1", []byte("a"))
	maps.Copy(msg.Metadata, message.Metadata{"reason_poisoned": "boom", "topic_poisoned": "orders", poison.KeyRedriveCount: "3"})
	testkit.NoError(t, newHandler(t, &outbox{}, redrive.HandlerConfig{Park: park}).Handle(msg))
	l, err := poison.Decode(park.All()[0].Msg)
	testkit.Check(t, err == nil && l.Failure.Reason == classify.ReasonMaxRedrives && l.Failure.Description == "boom" &&
		l.Origin.Topic == "orders", "%+v, %v", l, err)
}

// Promise P1: a publisher that the router closes with another handler is an error at the start.
func TestHandler_publisherOfAnotherHandler(t *testing.T) {
	shared := &outbox{}
	for name, h := range map[string]*redrive.Handler{
		"the publisher":      newHandler(t, shared, redrive.HandlerConfig{Park: &outbox{}}),
		"HandlerConfig.Park": newHandler(t, &outbox{}, redrive.HandlerConfig{Park: shared}),
	} {
		pubsub := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
		router := testkit.Must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
		router.AddHandler("billing", "orders", pubsub, "invoices", struct{ message.Publisher }{shared}, message.PassthroughHandler)
		router.AddPlugin(h.Plugin(pubsub, "orders.dlq"))
		ctx, cancel := context.WithTimeout(t.Context(), deadline) // a router that starts runs on
		defer cancel()
		testkit.Says(t, router.Run(ctx), name+" (")
		_ = pubsub.Close()
	}
}

// Features V1, V8: the origin decides whether a letter is allowed, and ReentryTopic where it then enters.
func TestReentryTopic(t *testing.T) {
	stage := func(poison.Letter) string { return "orders.billing.retry.5s" }
	panics := func(poison.Letter) string { panic("boom") }
	for name, row := range map[string]struct {
		origin string
		entry  func(poison.Letter) string
		want   string // none if it is parked
	}{
		"at a stage":            {"orders", stage, "orders.billing.retry.5s"},
		"at the origin":         {"orders", func(poison.Letter) string { return "" }, "orders"},
		"no header says":        {"orders", nil, "orders"},
		"panics":                {"orders", panics, "orders"},
		"forged origin":         {"secrets", stage, ""},
		"no origin":             {"", stage, ""},
		"forged origin, panics": {"secrets", panics, ""},
	} {
		store, live, drained, park := newStore(t), &outbox{}, &outbox{}, &outbox{}
		msg, rules := letter("1", "{}", from(row.origin)), redrive.Rules{Allow: []string{"orders"}, ReentryTopic: row.entry}
		testkit.NoError(t, newHandler(t, live, redrive.HandlerConfig{Rules: rules, Park: park}).Handle(msg))
		publish(t, store, "orders.dlq", msg)
		drain(t, store, drained, redrive.DrainConfig{Rules: rules})
		for _, out := range []*outbox{live, drained} {
			taken, parked := out.All(), park.All()
			if row.want == "" {
				testkit.Check(t, len(taken) == 0 && len(parked) == 1 && parked[0].Topic == "unknown.parked",
					"%s: enters as %v, parked %v", name, taken, parked)
				continue
			}
			testkit.Check(t, len(parked) == 0 && len(taken) == 1 && taken[0].Topic == row.want &&
				taken[0].Msg.UUID == "1" && taken[0].Msg.Metadata[poison.KeyOriginalTopic] == row.origin &&
				!inside.Poison.IsLetter(taken[0].Msg), "%s: enters as %v, parked %v", name, taken, parked)
		}
	}
}

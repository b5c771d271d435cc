package redrive_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Features V1, V3, V4, promise P2: a drain brings every letter back once, in order, as the message that it was.
func TestDrain(t *testing.T) { onEach(t, testDrain) }

func testDrain(t *testing.T, on database) {
	store, out := on.NewStore(t), &outbox{}
	publish(t, store, "orders.dlq", several(120)...)
	var hooked atomic.Int64
	config := orders
	config.By = "ann"
	config.Hooks.OnRedrive = func(_ context.Context, l poison.Letter, topic string) {
		if topic == "orders" && l.DeadLetterTopic == "orders.dlq" {
			hooked.Add(1)
		}
		panic("a hook may")
	}
	report := drain(t, store, out, config)
	testkit.Equal(t, "hooks", hooked.Load(), 120)
	testkit.Require(t, report.Taken == 120 && report.Redriven == 120 && report.ID != "", "%+v", report)
	for i, p := range out.All() {
		want := fmt.Sprintf("id-%d", i)
		m := p.Msg.Metadata
		testkit.Require(t, p.Topic == "orders" && p.Msg.UUID == want && bytes.Equal(p.Msg.Payload, []byte("{}")) &&
			m["tenant"] == "blue" && m[poison.KeyRedriveCount] == "1" && m[poison.KeyRedriveID] == report.ID &&
			m[poison.KeyRedrivenBy] == "ann" && m[poison.KeyRedrivenAt] != "" &&
			m[poison.KeyOriginalTopic] == "orders" && m[poison.KeyOriginalHandler] == "billing" &&
			m[poison.KeyAttemptHistory] != "", "message %d: %s to %s: %v", i, p.Msg.UUID, p.Topic, m)
		for key := range m {
			testkit.Require(t, !strings.HasPrefix(key, "x-failure-") && key != poison.KeyAttempts &&
				!strings.HasSuffix(key, "failed-at"), "%s is still there", key)
		}
	}
	e := list(t, store, letters.Filter{Statuses: []letters.Status{letters.StatusRedriven}, Limit: 1})[0]
	testkit.Check(t, e.Marked.By == "ann" && e.Marked.RedriveID == report.ID, "%+v", e.Marked)
	wantCount(t, store, letters.Filter{Statuses: []letters.Status{letters.StatusRedriven}, RedriveIDs: []string{report.ID}}, 120)
	again := drain(t, store, out, orders)
	testkit.Check(t, again.Taken == 0 && again.ID != report.ID, "%+v", again)
}

// Feature V5: filter and maximum choose what is taken.
func TestDrain_chooses(t *testing.T) {
	store, out := sqliteFile.NewStore(t), &outbox{}
	publish(t, store, "orders.dlq", several(10)...)
	publish(t, store, "orders.dlq", letter("x", "x", func(l *poison.Letter) { l.Failure.Reason = "bad" }))
	r := drain(t, store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, Filter: letters.Filter{Reasons: []string{"bad"}}}})
	testkit.Require(t, r.Redriven == 1 && out.IDs()["x"] == 1, "%+v", r)
	r = drain(t, store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}}, Max: 3})
	testkit.Require(t, r.Taken == 3 && r.Redriven == 3, "%+v", r)
	upTo := redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, Filter: letters.Filter{MaxSeq: 5}}}
	testkit.Equal(t, "redriven", drain(t, store, out, upTo).Redriven, 2)
	r = drain(t, store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"repair"}, To: "repair"}})
	testkit.Require(t, r.Redriven == 5, "%+v", r)
	for _, p := range out.All()[6:] {
		testkit.Check(t, p.Topic == "repair", "published to %s", p.Topic)
	}
}

// Feature V8, promises P1, P6: letters of other topics wait, and the report counts them by topic.
func TestDrain_allowList(t *testing.T) { onEach(t, testDrain_allowList) }

func testDrain_allowList(t *testing.T, on database) {
	store, out := on.NewStore(t), &outbox{}
	publish(t, store, "orders.dlq", letter("1", "a", from("payments")), letter("2", "b"), letter("3", "c", from("")), letter("4", "d", from("orders ")),
		letter("5", "e", from("payments"), redrivenTimes(9)))
	config := orders
	config.Hooks.OnRefused = func(context.Context, poison.Letter, string) { t.Error("a letter was read for nothing") }
	for range 2 { // the second drain changes nothing
		r := drain(t, store, out, config)
		want := map[string]int{"payments": 2, "": 1, "orders ": 1}
		testkit.Require(t, r.Refused == 4 && r.Taken == r.Redriven && len(out.All()) == 1 &&
			maps.Equal(r.RefusedTopics, want), "%+v", r)
	}
	wantCount(t, store, letters.Filter{}, 4)
	groups, err := store.Groups(t.Context(), letters.Filter{Topics: []string{"payments"}})
	testkit.Check(t, err == nil && len(groups) == 1 && groups[0].Count == 2, "%+v, %v", groups, err)
	chosen := redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, Filter: letters.Filter{Topics: []string{"orders "}}}}
	r := drain(t, store, out, chosen)
	testkit.Check(t, r.Refused == 1 && r.Taken == 0, "of the chosen: %+v", r)
	r = drain(t, store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"payments", "unused"}}})
	testkit.Require(t, r.Redriven == 1 && r.Quarantined == 1 && r.Refused == 2 && out.All()[1].Topic == "payments",
		"%+v", r)
	r = drain(t, store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"repair"}, To: "repair"}})
	testkit.Check(t, r.Redriven == 2 && r.Refused == 0, "%+v", r)
}

// Feature V3, promise P6: a letter that came back as often as is allowed is quarantined; counts that cannot be are 0.
func TestDrain_maxRedrives(t *testing.T) {
	store, out := sqliteFile.NewStore(t), &outbox{}
	var messages []*message.Message
	for _, count := range []string{"-1", "garbage", "99999999999999999999", "", "2", "3", "4"} {
		msg := letter("id "+count, "a")
		msg.Metadata.Set(poison.KeyRedriveCount, count)
		messages = append(messages, msg)
	}
	publish(t, store, "orders.dlq", messages...)
	r := drain(t, store, out, orders)
	testkit.Require(t, r.Redriven == 5 && r.Quarantined == 2, "%+v", r)
	for _, p := range out.All() {
		want := "1"
		if p.Msg.UUID == "id 2" {
			want = "3"
		}
		got := p.Msg.Metadata.Get(poison.KeyRedriveCount)
		testkit.Check(t, got == want, "%s: count %s", p.Msg.UUID, got)
	}
	e := list(t, store, status(letters.StatusQuarantined))
	testkit.Require(t, len(e) == 2 && e[0].Marked.Reason == classify.ReasonMaxRedrives &&
		e[0].Letter.Failure.Reason == "no_such_customer", "%+v", e)
	r = drain(t, store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, MaxRedrives: 4, Filter: status(letters.StatusQuarantined)}})
	testkit.Require(t, r.Redriven == 1 && r.Quarantined == 1, "%+v", r)
}

// Promises P1, P6: an unsafe configuration of a drain or a handler is an error that names the field.
func TestConstruction(t *testing.T) {
	store, ctx, allow := newStore(t), t.Context(), []string{"orders"}
	rules := func(change func(*redrive.Rules)) redrive.DrainConfig {
		c := redrive.DrainConfig{Rules: redrive.Rules{Allow: allow}}
		change(&c.Rules)
		return c
	}
	for field, c := range map[string]redrive.DrainConfig{
		"DrainConfig.Allow is":                 {},
		"DrainConfig.Allow contains":           rules(func(r *redrive.Rules) { r.Allow = []string{""} }),
		"DrainConfig.To":                       rules(func(r *redrive.Rules) { r.To = "admin" }),
		"DrainConfig.Rate is -1":               rules(func(r *redrive.Rules) { r.Rate = -1 }),
		"DrainConfig.Rate is NaN":              rules(func(r *redrive.Rules) { r.Rate = math.NaN() }),
		"DrainConfig.Rate is +Inf":             rules(func(r *redrive.Rules) { r.Rate = math.Inf(1) }),
		"DrainConfig.Concurrency":              rules(func(r *redrive.Rules) { r.Concurrency = -1 }),
		"MaxRedrives (-1)":                     rules(func(r *redrive.Rules) { r.MaxRedrives = -1 }),
		"PublishAttempts (-1)":                 rules(func(r *redrive.Rules) { r.PublishAttempts = -1 }),
		"DrainConfig.Max is -1":                {Rules: allowOrders, Max: -1},
		"DrainConfig.Filter.NewestFirst":       rules(func(r *redrive.Rules) { r.Filter.NewestFirst = true }),
		"DrainConfig.Filter.Limit":             rules(func(r *redrive.Rules) { r.Filter.Limit = 5 }),
		"DrainConfig.Filter: letters: Filter.": rules(func(r *redrive.Rules) { r.Filter = status("x") }),
		"Filter.IDs lists 501":                 rules(func(r *redrive.Rules) { r.Filter.IDs = make([]string, 501) }),
		"DrainConfig.Allow and":                rules(func(r *redrive.Rules) { r.Allow = slices.Repeat(allow, 501) }),
	} {
		testkit.Says(t, testkit.Err(redrive.Drain(ctx, store, &outbox{}, c)), field)
	}
	topic := func(change func(*topicDrain)) error {
		c := topicConfig(t, &outbox{}, &outbox{})
		change(&c)
		return testkit.Err(c.drain(ctx))
	}
	plan := func(change func(*redrive.DrainTopicConfig)) error {
		c := redrive.DrainTopicConfig{Rules: allowOrders, Topic: "orders.dlq"}
		change(&c)
		return testkit.Err(hidden.Of((*redrive.Handler)(nil)).PlanTopic(ctx, &shelf{}, c))
	}
	handler := func(change func(*redrive.HandlerConfig)) error {
		c := redrive.HandlerConfig{Rules: allowOrders, Park: &outbox{}}
		change(&c)
		return testkit.Err(redrive.NewHandler(&outbox{}, c))
	}
	var none context.Context
	closed := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	testkit.NoError(t, closed.Close())
	for _, row := range []struct {
		says string
		err  error
	}{
		{"the publisher is nil", testkit.Err(redrive.Drain(ctx, store, (*outbox)(nil), orders))},
		{"the Store is nil", testkit.Err(redrive.Drain(ctx, nil, &outbox{}, orders))},
		{"the context is nil", testkit.Err(redrive.Drain(none, store, &outbox{}, orders))},
		{"the subscriber is nil", topic(func(c *topicDrain) { c.sub = nil })},
		{"closed", topic(func(c *topicDrain) { c.sub = closed })},
		{"DrainTopicConfig.Topic", topic(func(c *topicDrain) { c.Topic = "" })},
		{"DrainTopicConfig.IdleAfter", topic(func(c *topicDrain) { c.IdleAfter = -1 })},
		{"the publisher is nil", topic(func(c *topicDrain) { c.live = nil })},
		{"DrainTopicConfig.Allow", topic(func(c *topicDrain) { c.Allow = nil })},
		{"DrainTopicConfig.Topic", plan(func(c *redrive.DrainTopicConfig) { c.Topic = "" })},
		{"DrainTopicConfig.Allow", plan(func(c *redrive.DrainTopicConfig) { c.Allow = nil })},
		{"choose rows of a Store", plan(func(c *redrive.DrainTopicConfig) { c.Filter.After = 1 })},
		{"is nil", testkit.Err(hidden.Of((*redrive.Handler)(nil)).PlanTopic(ctx, nil, redrive.DrainTopicConfig{}))},
		{"HandlerConfig.Park", handler(func(c *redrive.HandlerConfig) { c.Park = (*outbox)(nil) })},
		{"the publisher is a dead-letter Store",
			testkit.Err(redrive.NewHandler(store, redrive.HandlerConfig{Rules: allowOrders, Park: store}))},
		{"HandlerConfig.Allow", handler(func(c *redrive.HandlerConfig) { c.Allow = nil })},
		{"HandlerConfig.To and ReentryTopic", handler(func(c *redrive.HandlerConfig) {
			c.To, c.ReentryTopic = "orders", func(poison.Letter) string { return "" }
		})},
		{"HandlerConfig.Filter: Statuses", handler(func(c *redrive.HandlerConfig) { c.Filter.MaxSeq = 1 })},
		{"nil", testkit.Err(redrive.NewHandler(nil, redrive.HandlerConfig{Rules: allowOrders, Park: &outbox{}}))},
		{"nil", newHandler(t, &outbox{}, redrive.HandlerConfig{Park: &outbox{}}).Handle(nil)},
	} {
		testkit.Says(t, row.err, row.says)
	}
	type shows struct{ message.Publisher } // a Store is no way back, also not behind decorators
	for _, pub := range []message.Publisher{store, shows{store}, metered{store}, &shows{metered{shows{store}}}} {
		testkit.Says(t, testkit.Err(redrive.Drain(ctx, store, pub, orders)), "is a dead-letter Store")
	}
}

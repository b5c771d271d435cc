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

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Features V1, V3, V4, promise P2: a drain brings every letter back once, in order, as the message that it was, and
// reports its progress.
func TestDrain(t *testing.T) { onEach(t, testDrain) }

func testDrain(t *testing.T, on database) {
	store, out := on.NewStore(t), &outbox{}
	publish(t, store, "orders.dlq", several(120)...)
	var hooked atomic.Int64
	report := drain(t, store, out, redrive.DrainConfig{
		Rules: redrive.Rules{
			Allow: []string{"orders"},
			By:    "ann",
			Hooks: redrive.Hooks{OnRedrive: func(_ context.Context, l poison.Letter, topic string) {
				if topic == "orders" && l.DeadLetterTopic == "orders.dlq" {
					hooked.Add(1)
				}
				panic("a hook may")
			}},
		},
	})
	if report.Taken != 120 || report.Redriven != 120 || report.ID == "" || hooked.Load() != 120 {
		t.Fatalf("%+v, %d hooks", report, hooked.Load())
	}
	for i, p := range out.All() {
		want := fmt.Sprintf("id-%d", i)
		m := p.Msg.Metadata
		if p.Topic != "orders" || p.Msg.UUID != want || !bytes.Equal(p.Msg.Payload, []byte("{}")) || m["tenant"] != "blue" ||
			m[poison.KeyRedriveCount] != "1" || m[poison.KeyRedriveID] != report.ID || m[poison.KeyRedrivenBy] != "ann" ||
			m[poison.KeyRedrivenAt] == "" || m[poison.KeyOriginalTopic] != "orders" || m[poison.KeyOriginalHandler] != "billing" ||
			m[poison.KeyAttemptHistory] == "" {
			t.Fatalf("message %d: %s to %s: %v", i, p.Msg.UUID, p.Topic, m)
		}
		for key := range m {
			if strings.HasPrefix(key, "x-failure-") || key == poison.KeyAttempts || strings.HasSuffix(key, "failed-at") {
				t.Fatalf("%s is still there", key)
			}
		}
	}
	e := list(t, store, letters.Filter{Statuses: []letters.Status{letters.StatusRedriven}, Limit: 1})[0]
	if e.Marked.By != "ann" || e.Marked.RedriveID != report.ID {
		t.Errorf("%+v", e.Marked)
	}
	wantCount(t, store, letters.Filter{Statuses: []letters.Status{letters.StatusRedriven}, RedriveIDs: []string{report.ID}}, 120)
	if again := drain(t, store, out, orders); again.Taken != 0 || again.ID == report.ID {
		t.Errorf("%+v", again)
	}
}

// Feature V5: filter and maximum choose what is taken.
func TestDrain_chooses(t *testing.T) { onEach(t, testDrain_chooses) }

func testDrain_chooses(t *testing.T, on database) {
	store, out := on.NewStore(t), &outbox{}
	publish(t, store, "orders.dlq", several(10)...)
	publish(t, store, "orders.dlq", letter("x", "x", func(l *poison.Letter) { l.Failure.Reason = "bad" }))
	r := drain(t, store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, Filter: letters.Filter{Reasons: []string{"bad"}}}})
	if r.Redriven != 1 || out.IDs()["x"] != 1 {
		t.Fatalf("%+v", r)
	}
	if r := drain(t, store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}}, Max: 3}); r.Taken != 3 || r.Redriven != 3 {
		t.Fatalf("%+v", r)
	}
	if r := drain(t, store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, Filter: letters.Filter{MaxSeq: 5}}}); r.Redriven != 2 {
		t.Fatalf("%+v", r)
	}
	if r := drain(t, store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"repair"}, To: "repair"}}); r.Redriven != 5 {
		t.Fatalf("%+v", r)
	}
	for _, p := range out.All()[6:] {
		if p.Topic != "repair" {
			t.Errorf("published to %s", p.Topic)
		}
	}
}

// Feature V8, promises P1, P6: a letter whose topic is not allowed goes nowhere and goes on waiting, where an operator
// sees it, and the report says how many of which topics there are.
func TestDrain_allowList(t *testing.T) { onEach(t, testDrain_allowList) }

func testDrain_allowList(t *testing.T, on database) {
	store, out := on.NewStore(t), &outbox{}
	publish(t, store, "orders.dlq", letter("1", "a", from("payments")), letter("2", "b"), letter("3", "c", from("")), letter("4", "d", from("orders ")),
		letter("5", "e", from("payments"), redrivenTimes(9)))
	config := redrive.DrainConfig{
		Rules: redrive.Rules{
			Allow: []string{"orders"},
			Hooks: redrive.Hooks{
				OnRefused: func(context.Context, poison.Letter, string) { t.Error("a letter was read for nothing") },
			},
		},
	}
	for range 2 { // the second drain changes nothing
		r := drain(t, store, out, config)
		want := map[string]int{"payments": 2, "": 1, "orders ": 1}
		if r.Refused != 4 || r.Taken != r.Redriven || len(out.All()) != 1 || !maps.Equal(r.RefusedTopics, want) {
			t.Fatalf("%+v", r)
		}
	}
	wantCount(t, store, letters.Filter{}, 4)
	if groups, err := store.Groups(t.Context(), letters.Filter{Topics: []string{"payments"}}); err != nil || len(groups) != 1 || groups[0].Count != 2 {
		t.Errorf("%+v, %v", groups, err)
	}
	chosen := redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, Filter: letters.Filter{Topics: []string{"orders "}}}}
	if r := drain(t, store, out, chosen); r.Refused != 1 || r.Taken != 0 {
		t.Errorf("of the chosen: %+v", r)
	}
	r := drain(t, store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"payments", "unused"}}})
	if r.Redriven != 1 || r.Quarantined != 1 || r.Refused != 2 || out.All()[1].Topic != "payments" {
		t.Fatalf("%+v", r)
	}
	if r := drain(t, store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"repair"}, To: "repair"}}); r.Redriven != 2 || r.Refused != 0 {
		t.Errorf("%+v", r)
	}
}

// Promise P6: the report names the topics with the most letters, however many there are.
func TestDrain_manyTopicsRefused(t *testing.T) { onEach(t, testDrain_manyTopicsRefused) }

func testDrain_manyTopicsRefused(t *testing.T, on database) {
	store := on.NewStore(t)
	var all []*message.Message
	for i := range 30 {
		for j := range i + 1 {
			all = append(all, letter(fmt.Sprint(i, j), "a", from(fmt.Sprint("topic-", i))))
		}
	}
	publish(t, store, "orders.dlq", all...)
	r := drain(t, store, &outbox{}, orders)
	if r.Refused != 465 || len(r.RefusedTopics) != 20 || r.RefusedTopics["topic-29"] != 30 || r.RefusedTopics["topic-10"] != 11 {
		t.Errorf("%+v", r)
	}
}

// Feature V3, promise P6: a letter that came back as often as is allowed is quarantined; counts that cannot be are 0.
func TestDrain_maxRedrives(t *testing.T) { onEach(t, testDrain_maxRedrives) }

func testDrain_maxRedrives(t *testing.T, on database) {
	store, out := on.NewStore(t), &outbox{}
	var messages []*message.Message
	for _, count := range []string{"-1", "garbage", "99999999999999999999", "", "2", "3", "4"} {
		msg := letter("id "+count, "a")
		msg.Metadata.Set(poison.KeyRedriveCount, count)
		messages = append(messages, msg)
	}
	publish(t, store, "orders.dlq", messages...)
	r := drain(t, store, out, orders)
	if r.Redriven != 5 || r.Quarantined != 2 {
		t.Fatalf("%+v", r)
	}
	for _, p := range out.All() {
		want := "1"
		if p.Msg.UUID == "id 2" {
			want = "3"
		}
		if got := p.Msg.Metadata.Get(poison.KeyRedriveCount); got != want {
			t.Errorf("%s: count %s", p.Msg.UUID, got)
		}
	}
	e := list(t, store, status(letters.StatusQuarantined))
	if len(e) != 2 || e[0].Marked.Reason != classify.ReasonMaxRedrives || e[0].Letter.Failure.Reason != "no_such_customer" {
		t.Fatalf("%+v", e)
	}
	r = drain(t, store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, MaxRedrives: 4, Filter: status(letters.StatusQuarantined)}})
	if r.Redriven != 1 || r.Quarantined != 1 {
		t.Fatalf("%+v", r)
	}
}

// Feature D7: letters of Watermill's PoisonQueue come back too, without its keys.
func TestDrain_watermillLetter(t *testing.T) { onEach(t, testDrain_watermillLetter) }

func testDrain_watermillLetter(t *testing.T, on database) {
	store, out := on.NewStore(t), &outbox{}
	msg := message.NewMessage("1", []byte("a"))
	maps.Copy(msg.Metadata, message.Metadata{"reason_poisoned": "boom", "topic_poisoned": "orders", "handler_poisoned": "billing", "k": "v"})
	publish(t, store, "poison", msg)
	wantCount(t, store, letters.Filter{Handlers: []string{"billing"}}, 1)
	if r := drain(t, store, out, orders); r.Redriven != 1 {
		t.Fatalf("%+v", r)
	}
	if m := out.All()[0].Msg.Metadata; m["k"] != "v" || m["reason_poisoned"] != "" || m[poison.KeyOriginalTopic] != "orders" {
		t.Errorf("%v", m)
	}
}

// Promise P6: an unsafe configuration is an error that names the field.
func TestDrain_construction(t *testing.T) {
	store, allow := newStore(t), []string{"orders"}
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
		"DrainConfig.Filter.NewestFirst":       rules(func(r *redrive.Rules) { r.Filter = letters.Filter{NewestFirst: true} }),
		"DrainConfig.Filter.Limit":             rules(func(r *redrive.Rules) { r.Filter = letters.Filter{Limit: 5} }),
		"DrainConfig.Filter: letters: Filter.": rules(func(r *redrive.Rules) { r.Filter = status("x") }),
		"Filter.IDs lists 501":                 rules(func(r *redrive.Rules) { r.Filter = letters.Filter{IDs: make([]string, 501)} }),
		"DrainConfig.Allow and":                rules(func(r *redrive.Rules) { r.Allow = slices.Repeat(allow, 501) }),
	} {
		testkit.Says(t, testkit.Err(redrive.Drain(t.Context(), store, &outbox{}, c)), field)
	}
	testkit.Says(t, testkit.Err(redrive.Drain(t.Context(), store, newStore(t), orders)), "is a dead-letter Store")
	if _, err := redrive.NewHandler(store, redrive.HandlerConfig{Rules: redrive.Rules{Allow: allow}, Park: store}); err == nil || !strings.Contains(err.Error(), "the publisher is a dead-letter Store") {
		t.Error(err)
	}
	var none context.Context
	for missing, call := range map[string]func() error{
		"the publisher is nil": func() error { _, err := redrive.Drain(t.Context(), store, (*outbox)(nil), orders); return err },
		"the Store is nil":     func() error { _, err := redrive.Drain(t.Context(), nil, &outbox{}, orders); return err },
		"the context is nil":   func() error { _, err := redrive.Drain(none, store, &outbox{}, orders); return err },
	} {
		testkit.Says(t, call(), missing)
	}
}

package redrive_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
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
	report := drain(t, store, out, redrive.DrainConfig{
		Rules: redrive.Rules{
			Allow: []string{"orders"},
			By:    "ann",
			Hooks: redrive.Hooks{OnRedrive: func(_ context.Context, l poison.Letter, topic string) {
				if topic == "orders" && l.Topic == "orders.dlq" {
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

// Feature V8, promises P1, P6: a letter whose topic is not allowed goes nowhere and goes on waiting, where an operator sees
// it, and the report says how many of which topics there are.
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
		want := []letters.TopicCount{{Topic: "payments", Letters: 2}, {Topic: "", Letters: 1}, {Topic: "orders ", Letters: 1}}
		if r.Refused != 4 || r.Taken != r.Redriven || len(out.All()) != 1 || !slices.Equal(r.RefusedTopics, want) {
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
	if r.Refused != 465 || len(r.RefusedTopics) != 20 || r.RefusedTopics[0] != (letters.TopicCount{Topic: "topic-29", Letters: 30}) {
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
	if len(e) != 2 || e[0].Marked.Why != classify.ReasonMaxRedrives || e[0].Letter.Failure.Reason != "no_such_customer" {
		t.Fatalf("%+v", e)
	}
	r = drain(t, store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, MaxRedrives: 4, Filter: status(letters.StatusQuarantined)}})
	if r.Redriven != 1 || r.Quarantined != 1 {
		t.Fatalf("%+v", r)
	}
}

// Promises P1, P4: a publisher that refuses loses nothing, and the drain ends instead of trying for ever.
func TestDrain_publisherDown(t *testing.T) { onEach(t, testDrain_publisherDown) }

func testDrain_publisherDown(t *testing.T, on database) {
	store, out := on.NewStore(t), &outbox{Before: refuse}
	publish(t, store, "orders.dlq", several(10)...)
	report, err := redrive.Drain(t.Context(), store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, PublishAttempts: 1}})
	if !errors.Is(err, errDown) || report.Failed != 3 || report.Redriven != 0 || report.Taken != 3 {
		t.Fatalf("%+v, %v", report, err)
	}
	if taken, err := store.Take(t.Context(), letters.Filter{}, time.Hour, 100); err != nil || len(taken) != 10 {
		t.Fatalf("%d letters are free, %v", len(taken), err)
	}
}

// Promise P1: single refusals and panics are tried again, and a letter refused for good waits while the others go.
func TestDrain_refusals(t *testing.T) { onEach(t, testDrain_refusals) }

func testDrain_refusals(t *testing.T, on database) {
	store := on.NewStore(t)
	publish(t, store, "orders.dlq", several(8)...)
	tries := make(map[string]int)
	var errs atomic.Int64
	out := &outbox{Before: func(_ string, msg *message.Message) error {
		tries[msg.UUID]++
		switch {
		case msg.UUID == "id-3":
			return errDown
		case msg.UUID == "id-5" && tries[msg.UUID] == 1:
			panic("publisher")
		}
		return nil
	}}
	report := drain(t, store, out, redrive.DrainConfig{
		Rules: redrive.Rules{
			Allow:           []string{"orders"},
			PublishAttempts: 2,
			Hooks: redrive.Hooks{
				OnPublishError: func(context.Context, poison.Letter, error) { errs.Add(1) },
			},
		},
	})
	if report.Redriven != 7 || report.Failed != 1 || tries["id-3"] != 2 || errs.Load() != 3 {
		t.Fatalf("%+v %v", report, tries)
	}
	if e := list(t, store, letters.Filter{}); len(e) != 1 || e[0].Letter.Original.UUID != "id-3" {
		t.Fatalf("%+v", e)
	}
}

// Promise P1: whatever happens between publish and mark, the letter is still there.
func TestDrain_diesBetweenPublishAndMark(t *testing.T) {
	onEach(t, testDrain_diesBetweenPublishAndMark)
}

func testDrain_diesBetweenPublishAndMark(t *testing.T, on database) {
	open := on.Create(t)
	db := open()
	store, err := letters.NewStore(t.Context(), db, letters.StoreConfig{Service: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	publish(t, store, "orders.dlq", several(5)...)
	out := &outbox{}
	killed := publisherFunc(func(topic string, messages ...*message.Message) error {
		_ = out.Publish(topic, messages...)
		_ = db.Close() // the process ends here: nothing can be written any more
		return nil
	})
	report, err := redrive.Drain(t.Context(), store, killed, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}}, Lease: 30 * time.Millisecond})
	if err == nil || report.Redriven != 1 || len(out.All()) != 1 {
		t.Fatalf("%+v, %v", report, err)
	}

	again, err := letters.NewStore(t.Context(), open(), letters.StoreConfig{Service: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	wantCount(t, again, letters.Filter{}, 5)
	eventually(t, "the leases expire and all letters come back", func() bool {
		drain(t, again, out, orders)
		return len(out.IDs()) == 5 && out.IDs()["id-0"] > 1 // the letter in hand, whose lease was the last to be renewed
	})
	if n := out.IDs()["id-0"]; n != 2 {
		t.Errorf("the letter in hand was published %d times", n)
	}

	for name, die := range map[string]func(){"panic": func() { panic("after accepting") }, "goexit": runtime.Goexit} {
		store, out := on.NewStore(t), &outbox{}
		publish(t, store, "orders.dlq", several(2)...)
		dying := publisherFunc(func(topic string, messages ...*message.Message) error {
			_ = out.Publish(topic, messages...)
			die()
			return nil
		})
		_, _ = redrive.Drain(t.Context(), store, dying, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, PublishAttempts: 1}})
		if taken, err := store.Take(t.Context(), letters.Filter{}, time.Hour, 10); err != nil || len(taken) != 2 {
			t.Errorf("%s: %d letters are free, %v", name, len(taken), err)
		}
	}
}

// Promise P3: a drain that is cancelled says what it did, marks what it published and gives the rest back.
func TestDrain_cancelled(t *testing.T) { onEach(t, testDrain_cancelled) }

func testDrain_cancelled(t *testing.T, on database) {
	store := on.NewStore(t)
	publish(t, store, "orders.dlq", several(20)...)
	ctx, cancel := context.WithCancel(t.Context())
	out := &outbox{Before: func(_ string, msg *message.Message) error {
		if msg.UUID == "id-4" {
			cancel()
		}
		return nil
	}}
	report, err := redrive.Drain(ctx, store, out, orders)
	if !errors.Is(err, context.Canceled) || report.Redriven != 5 || report.Taken != 5 || report.Failed != 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	wantCount(t, store, status(letters.StatusRedriven), 5)
	if taken, err := store.Take(t.Context(), letters.Filter{}, time.Hour, 100); err != nil || len(taken) != 15 {
		t.Fatalf("%d letters are free, %v", len(taken), err)
	}
	if report, err := redrive.Drain(ctx, store, out, orders); !errors.Is(err, context.Canceled) || report.Taken != 0 {
		t.Fatalf("%+v, %v", report, err)
	}
}

// Feature V2, promise P3: waiting for the rate ends with the context.
func TestDrain_cancelledWhileWaiting(t *testing.T) { onEach(t, testDrain_cancelledWhileWaiting) }

func testDrain_cancelledWhileWaiting(t *testing.T, on database) {
	store, out := on.NewStore(t), &outbox{}
	publish(t, store, "orders.dlq", several(5)...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := publisherFunc(func(topic string, messages ...*message.Message) error {
		time.AfterFunc(50*time.Millisecond, cancel) // the others have been taken, and wait for their turn
		return out.Publish(topic, messages...)
	})
	report, err := redrive.Drain(ctx, store, first, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, Rate: 0.001, Concurrency: 3}})
	if !errors.Is(err, context.Canceled) || report.Redriven != 1 || len(out.All()) != 1 {
		t.Fatalf("%+v, %v", report, err)
	}
	if taken, err := store.Take(t.Context(), letters.Filter{}, time.Hour, 100); err != nil || len(taken) != 4 {
		t.Fatalf("%d letters are free, %v", len(taken), err)
	}
}

// Promise P6: a letter that fails again while the drain runs is not taken twice, even if its redrive count was lost.
func TestDrain_failsAgain(t *testing.T) { onEach(t, testDrain_failsAgain) }

func testDrain_failsAgain(t *testing.T, on database) {
	for name, strip := range map[string]bool{"counted": false, "count lost on the way": true} {
		t.Run(name, func(t *testing.T) {
			store := on.NewStore(t)
			publish(t, store, "orders.dlq", several(60)...)
			out := &outbox{}
			consumer := publisherFunc(func(topic string, messages ...*message.Message) error {
				for _, msg := range messages {
					l := withClass(msg)
					if strip {
						delete(l.Metadata, poison.KeyRedriveCount)
					}
					if err := store.Publish("orders.dlq", l); err != nil {
						return err
					}
				}
				return out.Publish(topic, messages...)
			})
			report := drain(t, store, consumer, orders)
			if report.Taken != 60 || report.Redriven != 60 || len(out.All()) != 60 {
				t.Fatalf("%+v", report)
			}
			wantCount(t, store, letters.Filter{}, 60)
		})
	}
	store := on.NewStore(t)
	publish(t, store, "orders.dlq", several(10)...)
	drain(t, store, &outbox{}, orders)
	publish(t, store, "orders.dlq", several(10)...) // the same letters again, after the mark
	wantCount(t, store, letters.Filter{}, 10)
}

// Feature V2, promise P6: two drains at the same time share the letters.
func TestDrain_concurrently(t *testing.T) { onEach(t, testDrain_concurrently) }

func testDrain_concurrently(t *testing.T, on database) {
	store, out := on.NewStore(t), &outbox{}
	publish(t, store, "orders.dlq", several(300)...)
	total := make(chan redrive.Report, 2)
	for range 2 {
		go func() {
			report, err := redrive.Drain(context.Background(), store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, Concurrency: 4}})
			if err != nil {
				t.Error(err)
			}
			total <- report
		}()
	}
	a, b := <-total, <-total
	ids := out.IDs()
	if a.Redriven+b.Redriven != 300 || len(ids) != 300 || len(out.All()) != 300 {
		t.Errorf("%+v %+v: %d ids", a, b, len(ids))
	}
}

// Feature V2: never more than Concurrency publishes at a time.
func TestDrain_concurrencyCap(t *testing.T) { onEach(t, testDrain_concurrencyCap) }

func testDrain_concurrencyCap(t *testing.T, on database) {
	store := on.NewStore(t)
	publish(t, store, "orders.dlq", several(40)...)
	var now, most atomic.Int64
	out := &outbox{Before: func(string, *message.Message) error {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		eventually(t, "another one is published beside it", func() bool { return most.Load() > 1 })
		time.Sleep(time.Millisecond) // for one too many to show
		now.Add(-1)
		return nil
	}}
	if r := drain(t, store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, Concurrency: 3}}); r.Redriven != 40 {
		t.Fatalf("%+v", r)
	}
	if most.Load() > 3 {
		t.Errorf("%d at a time", most.Load())
	}
}

// Feature V2: the rate is exact to 1 %, whatever the concurrency.
func TestHandler_rateIsExact(t *testing.T) {
	for _, concurrency := range []int{1, 8} {
		synctest.Test(t, func(t *testing.T) {
			out := &outbox{}
			h, err := redrive.NewHandler(out, redrive.HandlerConfig{
				Rules:   redrive.Rules{Allow: []string{"orders"}, Rate: 50, Concurrency: concurrency},
				Park:    &outbox{},
				MinWait: -1,
			})
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			done := make(chan error)
			for i := range 501 {
				go func() { done <- h.Handle(letter(fmt.Sprint(i), "a")) }()
			}
			for range 501 {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			if took := time.Since(start); math.Abs(took.Seconds()-10) > 0.1 { // the first goes at once
				t.Errorf("501 letters at 50/s took %s", took)
			}
			perSecond := make(map[int]int)
			for _, p := range out.All() {
				perSecond[int(p.At.Sub(start).Seconds())]++
			}
			for second, n := range perSecond {
				if n > 51 {
					t.Errorf("%d letters in second %d", n, second)
				}
			}
		})
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
		"DrainConfig.Lease":                    {Rules: allowOrders, Lease: -1},
		"Max (-1)":                             {Rules: allowOrders, Max: -1},
		"DrainConfig.Filter.Limit":             rules(func(r *redrive.Rules) { r.Filter = letters.Filter{Limit: 5} }),
		"DrainConfig.Filter: letters: Filter.": rules(func(r *redrive.Rules) { r.Filter = status("x") }),
		"Filter.IDs lists 501":                 rules(func(r *redrive.Rules) { r.Filter = letters.Filter{IDs: make([]string, 501)} }),
		"DrainConfig.Allow and":                rules(func(r *redrive.Rules) { r.Allow = slices.Repeat(allow, 501) }),
	} {
		if _, err := redrive.Drain(t.Context(), store, &outbox{}, c); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := redrive.Drain(t.Context(), store, newStore(t), orders); err == nil || !strings.Contains(err.Error(), "is a dead-letter Store") {
		t.Error(err)
	}
	if _, err := redrive.NewHandler(store, redrive.HandlerConfig{Rules: redrive.Rules{Allow: allow}, Park: store}); err == nil || !strings.Contains(err.Error(), "the publisher is a dead-letter Store") {
		t.Error(err)
	}
	var none context.Context
	for missing, call := range map[string]func() error{
		"the publisher is nil": func() error { _, err := redrive.Drain(t.Context(), store, (*outbox)(nil), orders); return err },
		"the Store is nil":     func() error { _, err := redrive.Drain(t.Context(), nil, &outbox{}, orders); return err },
		"the context is nil":   func() error { _, err := redrive.Drain(none, store, &outbox{}, orders); return err },
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("%s: %v", missing, err)
		}
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

// Promise P1: a lease that ended in the wait for a slow rate is renewed before the publish, and a letter that somebody
// else took over meanwhile is left to them.
func TestDrain_renewsLeases(t *testing.T) { onEach(t, testDrain_renewsLeases) }

func testDrain_renewsLeases(t *testing.T, on database) {
	store, out := on.NewStore(t), &outbox{}
	publish(t, store, "orders.dlq", several(4)...)
	r := drain(t, store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, Rate: 20, Concurrency: 2}, Lease: 5 * time.Millisecond})
	if r.Redriven != 4 || r.LeasesLost != 0 {
		t.Fatalf("%+v", r)
	}
	wantCount(t, store, status(letters.StatusRedriven), 4)
}

// Decision 12: a letter that arrives again while the drain waits for its turn, and that another then takes, is not
// published by the drain.
func TestDrain_leavesWhatWasTakenOver(t *testing.T) { onEach(t, testDrain_leavesWhatWasTakenOver) }

func testDrain_leavesWhatWasTakenOver(t *testing.T, on database) {
	const lease = 2 * time.Second // the disk may stand still for a while
	store, out := on.NewStore(t), &outbox{}
	publish(t, store, "orders.dlq", several(2)...)
	taken := make(chan []letters.Taken, 1)
	r := drain(t, store, out, redrive.DrainConfig{
		Rules: redrive.Rules{
			Allow: []string{"orders"},
			Hooks: redrive.Hooks{OnRedrive: func(context.Context, poison.Letter, string) {
				publish(t, store, "orders.dlq", letter("id-1", "{}"))
				theirs, err := store.Take(context.Background(), letters.Filter{}, time.Hour, 10)
				if err != nil {
					t.Error(err)
				}
				taken <- theirs
				time.Sleep(lease/2 + lease/8) // more than half of the lease
			}},
		},
		Lease: lease, // both are in hand
	})
	theirs := <-taken
	if len(theirs) != 1 || len(out.All()) != 1 || r.Redriven != 1 || r.LeasesLost != 1 {
		t.Fatalf("%+v, %d taken over", r, len(theirs))
	}
	if err := store.Mark(t.Context(), theirs[0], letters.StatusRedriven, letters.Marked{}); err != nil {
		t.Error(err)
	}
}

// Feature V1, promise P4: letters that are refused for good do not stand in the way of those behind them for ever.
func TestDrain_refusedLettersStepBack(t *testing.T) { onEach(t, testDrain_refusedLettersStepBack) }

func testDrain_refusedLettersStepBack(t *testing.T, on database) {
	s := on.NewStore(t)
	publish(t, s, "orders.dlq", several(10)...)
	cursed := map[string]bool{}
	for _, e := range list(t, s, letters.Filter{Limit: 3}) {
		cursed[e.Letter.Original.UUID] = true
	}
	live := &outbox{Before: func(_ string, msg *message.Message) error {
		if cursed[msg.UUID] {
			return errors.New("not this one")
		}
		return nil
	}}
	config := redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, PublishAttempts: 1}}
	if report, err := redrive.Drain(t.Context(), s, live, config); err == nil || report.Failed != 3 || report.Redriven != 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	if report, _ := redrive.Drain(t.Context(), s, live, config); report.Redriven != 7 {
		t.Errorf("the second drain: %+v", report)
	}
	wantCount(t, s, letters.Filter{}, 3)
}

// Feature V1, D6: a message that fits its topic comes back even where the history makes it too large, and letters that
// are too large do not end the drain.
func TestDrain_tooLarge(t *testing.T) { onEach(t, testDrain_tooLarge) }

func testDrain_tooLarge(t *testing.T, on database) {
	s := on.NewStore(t)
	history := func(l *poison.Letter) {
		l.Failure.History = []classify.Attempt{{At: time.Unix(1, 0), Class: classify.ClassTransient, Error: "a long story"}}
	}
	for i := range 5 {
		publish(t, s, "orders.dlq", letter(fmt.Sprint("huge-", i), "x"))
	}
	publish(t, s, "orders.dlq", letter("fits", "x", history))
	live := &outbox{Before: func(_ string, msg *message.Message) error {
		if strings.HasPrefix(msg.UUID, "huge") || msg.Metadata[poison.KeyAttemptHistory] != "" {
			return errors.New("message was too large")
		}
		return nil
	}}
	report, err := redrive.Drain(t.Context(), s, live, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, PublishAttempts: 2}})
	if err != nil || report.Redriven != 1 || report.Failed != 5 {
		t.Errorf("%+v, %v", report, err)
	}
}

// Promise P6: a publisher that ends its goroutine ends the drain with an error, not with letters passed over in silence.
func TestDrain_goexitIsAnError(t *testing.T) { onEach(t, testDrain_goexitIsAnError) }

func testDrain_goexitIsAnError(t *testing.T, on database) {
	s := on.NewStore(t)
	publish(t, s, "orders.dlq", several(4)...)
	live := &outbox{Before: func(string, *message.Message) error { runtime.Goexit(); return nil }}
	if report, err := redrive.Drain(t.Context(), s, live, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}}}); err == nil || report.Failed != 1 {
		t.Errorf("%+v, %v", report, err)
	}
	wantCount(t, s, letters.Filter{}, 4)
}

// Promise P4: a row that is damaged is shown as such, and those behind it come back.
func TestDrain_damagedRow(t *testing.T) { onEach(t, testDrain_damagedRow) }

func testDrain_damagedRow(t *testing.T, on database) {
	db := on.Create(t)()
	s, err := letters.NewStore(t.Context(), db, letters.StoreConfig{Service: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	publish(t, s, "orders.dlq", several(3)...)
	if _, err := db.Exec(`UPDATE spillway_dead_letters SET metadata = payload WHERE seq = 1`); err != nil {
		t.Fatal(err)
	}
	report, err := redrive.Drain(t.Context(), s, &outbox{}, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}}})
	if err != nil || report.Redriven != 2 || report.Refused != 1 {
		t.Errorf("%+v, %v", report, err)
	}
	if got := list(t, s, letters.Filter{}); len(got) != 1 || !strings.Contains(got[0].Letter.Failure.Description, "damaged") {
		t.Errorf("%+v", got)
	}
}

package redrive_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Promise P1: single refusals and panics are tried again, and a letter refused for good waits while the others go.
func TestDrain_refusals(t *testing.T) {
	store := sqliteFile.NewStore(t)
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
	config := orders
	config.PublishAttempts = 2
	config.Hooks.OnPublishError = func(context.Context, poison.Letter, error) { errs.Add(1) }
	report := drain(t, store, out, config)
	testkit.Require(t, report.Redriven == 7 && report.Failed == 1 && tries["id-3"] == 2 && errs.Load() == 3,
		"%+v %v", report, tries)
	e := list(t, store, letters.Filter{})
	testkit.Require(t, len(e) == 1 && e[0].Letter.Original.UUID == "id-3", "%+v", e)
}

// Feature V1, promises P1, P4: three refusals in a row end a drain, and those letters step behind the others.
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
			return errDown
		}
		return nil
	}}
	config := redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, PublishAttempts: 1}}
	report, err := redrive.Drain(t.Context(), s, live, config)
	testkit.Require(t, errors.Is(err, errDown) && report.Failed == 3 && report.Redriven == 0, "%+v, %v", report, err)
	report, _ = redrive.Drain(t.Context(), s, live, config)
	testkit.Check(t, report.Redriven == 7, "the second drain: %+v", report)
	wantCount(t, s, letters.Filter{}, 3)
}

// Promises P1, P6: of a drain that dies with letters in flight all come back, and few of them twice.
func TestDrain_dies(t *testing.T) {
	for concurrency, most := range map[int]int{1: 1, 8: 8 + 256} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			onEach(t, func(t *testing.T, on database) { testDrain_dies(t, on, concurrency, most) })
		})
	}
}

func testDrain_dies(t *testing.T, on database, concurrency, most int) {
	all := 50 * concurrency
	open, out := on.Create(t), &outbox{}
	db := open()
	store := storeOn(t, db)
	publish(t, store, "orders.dlq", several(all)...)
	var calls atomic.Int64
	config := redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, Concurrency: concurrency}}
	report, err := redrive.Drain(t.Context(), store, publisherFunc(func(topic string, some ...*message.Message) error {
		if int(calls.Add(1)) == all/2 {
			_ = db.Close() // the process ends here: nothing can be written any more
		}
		return out.Publish(topic, some...)
	}), config.Leasing(30*time.Millisecond))
	testkit.Require(t, err != nil, "%+v", report)
	again := storeOn(t, open())
	eventually(t, "the leases expire and all letters come back", func() bool {
		drain(t, again, out, config)
		n, err := again.Count(t.Context(), status(letters.StatusRedriven))
		return err == nil && n == all && len(out.IDs()) == all
	})
	twice := len(out.All()) - all
	testkit.Check(t, twice >= 1 && twice <= most, "%d of %d letters were published twice", twice, all)
}

// Promise P1: a publisher that panics after it accepted loses no letter; one that ends its goroutine ends the drain.
func TestDrain_publisherDies(t *testing.T) {
	for name, die := range map[string]func(){"panic": func() { panic("after accepting") }, "goexit": runtime.Goexit} {
		store := newStore(t)
		publish(t, store, "orders.dlq", several(2)...)
		dying := publisherFunc(func(string, ...*message.Message) error { die(); return nil })
		report, err := redrive.Drain(t.Context(), store, dying,
			redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, PublishAttempts: 1}})
		testkit.Check(t, name == "panic" || err != nil && report.Failed == 1, "%+v, %v", report, err)
		taken, err := fixture.Take(t.Context(), store, letters.Filter{}, time.Hour, 10)
		testkit.Check(t, err == nil && len(taken) == 2, "%s: %d letters are free, %v", name, len(taken), err)
	}
}

// Promise P1: whatever connections are lost during a drain, every letter comes back.
func TestDrain_connectionsLost(t *testing.T) {
	for _, d := range []databases.Database{databases.Postgres, databases.MariaDB} {
		t.Run(d.Name, func(t *testing.T) {
			address := d.Create(t)
			out, store := &outbox{}, storeOn(t, d.Open(t, address))
			through, proxy := d.Behind(t, address)
			publish(t, store, "orders.dlq", several(60)...)
			lost := make(map[string]bool)
			out.Before = func(_ string, msg *message.Message) error {
				if (msg.UUID == "id-5" || msg.UUID == "id-40") && !lost[msg.UUID] {
					lost[msg.UUID] = true
					proxy.Cut() // the mark of this letter, and what comes after, find no connection that works
					proxy.Heal()
				}
				return nil
			}
			draining := storeOn(t, through)
			eventually(t, "all letters are marked", func() bool {
				_, _ = redrive.Drain(t.Context(), draining, out, orders.Leasing(50*time.Millisecond))
				n, err := store.Count(t.Context(), status(letters.StatusRedriven))
				return err == nil && n == 60
			})
			testkit.Check(t, len(lost) == 2 && len(out.IDs()) == 60, "lost at %v, %d came back", lost, len(out.IDs()))
		})
	}
}

// Promise P6: a letter that fails again while the drain runs is not taken twice, even if its redrive count was lost.
func TestDrain_failsAgain(t *testing.T) { onEach(t, testDrain_failsAgain) }

func testDrain_failsAgain(t *testing.T, on database) {
	for name, strip := range map[string]bool{"counted": false, "count lost on the way": true} {
		t.Run(name, func(t *testing.T) {
			store := on.NewStore(t)
			publish(t, store, "orders.dlq", several(20)...)
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
			testkit.Require(t, report.Taken == 20 && report.Redriven == 20 && len(out.All()) == 20, "%+v", report)
			wantCount(t, store, letters.Filter{}, 20)
		})
	}
}

// Feature V2, promise P3: waiting for the rate ends with the context.
func TestDrain_cancelledWhileWaiting(t *testing.T) {
	store, out := sqliteFile.NewStore(t), &outbox{}
	publish(t, store, "orders.dlq", several(5)...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := publisherFunc(func(topic string, messages ...*message.Message) error {
		time.AfterFunc(50*time.Millisecond, cancel) // the others have been taken, and wait for their turn
		return out.Publish(topic, messages...)
	})
	report, err := redrive.Drain(ctx, store, first, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, Rate: 0.001, Concurrency: 3}})
	testkit.Require(t, errors.Is(err, context.Canceled) && report.Redriven == 1 && len(out.All()) == 1,
		"%+v, %v", report, err)
	taken, err := fixture.Take(t.Context(), store, letters.Filter{}, time.Hour, 100)
	testkit.Require(t, err == nil && len(taken) == 4, "%d letters are free, %v", len(taken), err)
}

// Promises P1, P3: at the end of its context a drain frees what it did not begin, also beside a stuck publisher.
func TestDrain_cancelled(t *testing.T) { onEach(t, testDrain_cancelled) }

func testDrain_cancelled(t *testing.T, on database) {
	store, out := on.NewStore(t), &outbox{}
	publish(t, store, "orders.dlq", several(5)...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	free := 0
	stuck := publisherFunc(func(topic string, messages ...*message.Message) error {
		cancel()
		eventually(t, "the four others are free", func() bool {
			taken, err := fixture.Take(t.Context(), store, letters.Filter{}, time.Hour, 10)
			testkit.Check(t, err == nil, "%v", err)
			free += len(taken)
			return free == 4
		})
		return out.Publish(topic, messages...)
	})
	report, err := redrive.Drain(ctx, store, stuck, orders.Leasing(time.Hour))
	testkit.Check(t, errors.Is(err, context.Canceled) && report.Redriven == 1 && report.Taken == 1 && report.Failed == 0,
		"%+v, %v", report, err)
	wantCount(t, store, status(letters.StatusRedriven), 1)
}

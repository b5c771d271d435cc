package redrive_test

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

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

// Feature V1, promises P1, P4: a drain ends when its publisher refuses three letters in a row, and loses none. Letters
// that are refused for good do not stand in the way of the others for ever.
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
	if report, err := redrive.Drain(t.Context(), s, live, config); !errors.Is(err, errDown) || report.Failed != 3 || report.Redriven != 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	if report, _ := redrive.Drain(t.Context(), s, live, config); report.Redriven != 7 {
		t.Errorf("the second drain: %+v", report)
	}
	wantCount(t, s, letters.Filter{}, 3)
}

// Promises P1, P6: whatever happens between publish and mark, the letter is still there. A publisher that ends its
// goroutine ends the drain with an error.
func TestDrain_diesBetweenPublishAndMark(t *testing.T) {
	onEach(t, testDrain_diesBetweenPublishAndMark)
}

func testDrain_diesBetweenPublishAndMark(t *testing.T, on database) {
	open := on.Create(t)
	db := open()
	store := storeOn(t, db)
	publish(t, store, "orders.dlq", several(5)...)
	out := &outbox{}
	killed := publisherFunc(func(topic string, messages ...*message.Message) error {
		_ = out.Publish(topic, messages...)
		_ = db.Close() // the process ends here: nothing can be written any more
		return nil
	})
	report, err := redrive.Drain(t.Context(), store, killed, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}}}.Leasing(30*time.Millisecond))
	if err == nil || report.Redriven != 1 || len(out.All()) != 1 {
		t.Fatalf("%+v, %v", report, err)
	}

	again := storeOn(t, open())
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
		report, err := redrive.Drain(t.Context(), store, dying, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, PublishAttempts: 1}})
		if name == "goexit" && (err == nil || report.Failed != 1) { // not letters passed over in silence
			t.Errorf("%+v, %v", report, err)
		}
		if taken, err := fixture.Take(t.Context(), store, letters.Filter{}, time.Hour, 10); err != nil || len(taken) != 2 {
			t.Errorf("%s: %d letters are free, %v", name, len(taken), err)
		}
	}
}

// Promises P1, P6: a drain dies with many letters in flight. The next one brings back each that was not marked, and no
// more of them twice than the documents say.
func TestDrain_diesWithManyInFlight(t *testing.T) {
	onEach(t, func(t *testing.T, on database) {
		const all, concurrency, unmarked = 600, 8, 256
		open := on.Create(t)
		db := open()
		store := storeOn(t, db)
		publish(t, store, "orders.dlq", several(all)...)
		out := &outbox{}
		var n atomic.Int64
		config := redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, Concurrency: concurrency}}
		report, err := redrive.Drain(t.Context(), store, publisherFunc(func(topic string, messages ...*message.Message) error {
			if n.Add(1) == 300 {
				_ = db.Close()
			}
			return out.Publish(topic, messages...)
		}), config.Leasing(30*time.Millisecond))
		if err == nil || report.Redriven == all {
			t.Fatalf("%+v, %v", report, err)
		}
		again := storeOn(t, open())
		eventually(t, "all letters come back", func() bool {
			drain(t, again, out, config)
			return len(out.IDs()) == all
		})
		if twice := len(out.All()) - all; twice > concurrency+unmarked {
			t.Errorf("%d of %d letters were published twice", twice, all)
		}
	})
}

// Promise P1: whatever connections are lost during a drain, every letter comes back.
func TestDrain_connectionsLost(t *testing.T) {
	t.Run(postgresSchema.Name, func(t *testing.T) {
		address := postgrestest.Schema(t)
		testDrain_connectionsLost(t, postgrestest.Open(t, address), postgrestest.Open(t, address+"&application_name=spillway-drain"),
			func(observer *sql.DB) error {
				_, err := observer.Exec(`SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'spillway-drain'`)
				return err
			})
	})
	t.Run(mysqlDatabase.Name, func(t *testing.T) {
		dsn := mysqltest.Database(t)
		observer := mysqltest.Open(t, dsn)
		observer.SetMaxOpenConns(1) // all others are the drain's
		testDrain_connectionsLost(t, observer, mysqltest.Open(t, dsn), func(observer *sql.DB) error {
			ids, err := observer.Query(`SELECT ID FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND ID <> CONNECTION_ID()`)
			if err != nil {
				return err
			}
			var all []int64
			for ids.Next() {
				var id int64
				err = errors.Join(err, ids.Scan(&id))
				all = append(all, id)
			}
			err = errors.Join(err, ids.Err(), ids.Close())
			for _, id := range all {
				mysqltest.Kill(t, observer, id)
			}
			return err
		})
	})
}

func testDrain_connectionsLost(t *testing.T, observer, drained *sql.DB, kill func(observer *sql.DB) error) {
	out, store := &outbox{}, storeOn(t, observer)
	publish(t, store, "orders.dlq", several(60)...)
	killed := make(map[string]bool)
	out.Before = func(_ string, msg *message.Message) error {
		if (msg.UUID == "id-5" || msg.UUID == "id-40") && !killed[msg.UUID] {
			// All connections of the drain's pool: the mark of this letter and what comes after find none that works.
			if err := kill(observer); err != nil {
				t.Error(err)
			}
			killed[msg.UUID] = true
		}
		return nil
	}
	draining := storeOn(t, drained)
	eventually(t, "all letters are marked", func() bool {
		_, _ = redrive.Drain(t.Context(), draining, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}}}.Leasing(50*time.Millisecond))
		n, err := store.Count(t.Context(), status(letters.StatusRedriven))
		return err == nil && n == 60
	})
	if len(killed) != 2 || len(out.IDs()) != 60 {
		t.Errorf("killed at %v, %d letters came back", killed, len(out.IDs()))
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
	if taken, err := fixture.Take(t.Context(), store, letters.Filter{}, time.Hour, 100); err != nil || len(taken) != 15 {
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
	if taken, err := fixture.Take(t.Context(), store, letters.Filter{}, time.Hour, 100); err != nil || len(taken) != 4 {
		t.Fatalf("%d letters are free, %v", len(taken), err)
	}
}

// Promises P1, P3: when the context of a drain ends, letters that were not begun are free at once, and do not wait for
// a publisher that is stuck. The letter in hand stays leased until the publisher returns.
func TestDrain_endsWhileAPublisherIsStuck(t *testing.T) {
	onEach(t, testDrain_endsWhileAPublisherIsStuck)
}

func testDrain_endsWhileAPublisherIsStuck(t *testing.T, on database) {
	store, out := on.NewStore(t), &outbox{}
	publish(t, store, "orders.dlq", several(5)...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	free := 0
	stuck := publisherFunc(func(topic string, messages ...*message.Message) error {
		cancel()
		eventually(t, "the four others are free", func() bool {
			taken, err := fixture.Take(t.Context(), store, letters.Filter{}, time.Hour, 10)
			if err != nil {
				t.Error(err)
			}
			free += len(taken)
			return free == 4
		})
		return out.Publish(topic, messages...)
	})
	report, err := redrive.Drain(ctx, store, stuck, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}}})
	if err == nil || report.Redriven != 1 || report.Taken != 1 {
		t.Errorf("%+v, %v", report, err)
	}
}

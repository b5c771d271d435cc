package redrive_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Decision 12, feature V5, promises P1, P6: drains of several processes bring back all that they choose, none twice.
func TestDrain_atOnce(t *testing.T) { onEach(t, testDrain_atOnce) }

func testDrain_atOnce(t *testing.T, on database) {
	const each = 200
	open, out := on.Create(t), &outbox{}
	first := storeOn(t, open())
	publish(t, first, "orders.dlq", fixture.OfTwo(2*each)...)
	var drains sync.WaitGroup
	var redriven [2]atomic.Int64 // of each filter
	for i := range 4 {
		store := storeOn(t, open())
		drains.Go(func() {
			rules := redrive.Rules{Allow: []string{"orders"}, Concurrency: 3}
			rules.Filter.Handlers = []string{string(rune('a' + i%2))}
			report, err := redrive.Drain(t.Context(), store, out, redrive.DrainConfig{Rules: rules})
			testkit.Check(t, err == nil, "%+v, %v", report, err)
			redriven[i%2].Add(int64(report.Redriven))
		})
	}
	drains.Wait()
	a, b, n, ids := redriven[0].Load(), redriven[1].Load(), len(out.All()), len(out.IDs())
	testkit.Check(t, a == each && b == each && n == 2*each && ids == n,
		"%d and %d are redriven, %d published, of %d ids", a, b, n, ids)
	wantCount(t, first, status(letters.StatusRedriven), 2*each)
}

// Feature V2: never more than Concurrency publishes at a time.
func TestDrain_concurrencyCap(t *testing.T) {
	store := sqliteFile.NewStore(t)
	publish(t, store, "orders.dlq", several(40)...)
	var now, most atomic.Int64
	out := &outbox{Before: func(string, *message.Message) error {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		eventually(t, "two others are published beside it", func() bool { return most.Load() > 2 })
		time.Sleep(time.Millisecond) // for one too many to show
		now.Add(-1)
		return nil
	}}
	r := drain(t, store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, Concurrency: 3}})
	testkit.Require(t, r.Redriven == 40, "%+v", r)
	testkit.Equal(t, "at a time", most.Load(), 3)
}

// Promise P1: a lease that ended in the wait for a slow rate is renewed before the publish.
func TestDrain_renewsLeases(t *testing.T) {
	store, out := sqliteFile.NewStore(t), &outbox{}
	publish(t, store, "orders.dlq", several(4)...)
	r := drain(t, store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, Rate: 20, Concurrency: 2}}.Leasing(5*time.Millisecond))
	testkit.Require(t, r.Redriven == 4 && r.LeasesLost == 0, "%+v", r)
	wantCount(t, store, status(letters.StatusRedriven), 4)
}

// Promise P1: a drain renews the leases of all letters in hand for as long as its publisher takes.
func TestDrain_renewsWhilePublishing(t *testing.T) { onEach(t, testDrain_renewsWhilePublishing) }

func testDrain_renewsWhilePublishing(t *testing.T, on database) {
	db := on.Create(t)()
	store, out := storeOn(t, db), &outbox{}
	publish(t, store, "orders.dlq", several(3)...)
	ends := func() (first, n int64) {
		err := db.QueryRow(`SELECT COALESCE(MIN(leased_until), 0), COUNT(*) FROM spillway_dead_letters WHERE token <> ''`).Scan(&first, &n)
		testkit.Check(t, err == nil, "%v", err)
		return first, n
	}
	slow := publisherFunc(func(topic string, messages ...*message.Message) error {
		if len(out.All()) == 0 {
			before, n := ends()
			eventually(t, "the leases of all three letters are renewed", func() bool {
				first, still := ends()
				return n == 3 && still == 3 && first > before
			})
		}
		return out.Publish(topic, messages...)
	})
	testkit.Equal(t, "redriven", drain(t, store, slow, orders.Leasing(time.Second)).Redriven, 3)
}

// Decision 12: a letter that arrives again before its turn, and that another takes, is not published by the drain.
func TestDrain_leavesWhatWasTakenOver(t *testing.T) { onEach(t, testDrain_leavesWhatWasTakenOver) }

func testDrain_leavesWhatWasTakenOver(t *testing.T, on database) {
	const lease = 2 * time.Second // the disk may stand still for a while
	store, out := on.NewStore(t), &outbox{}
	publish(t, store, "orders.dlq", several(2)...)
	taken := make(chan []fixture.Taken, 1)
	config := orders.Leasing(lease)
	config.Hooks.OnRedrive = func(context.Context, poison.Letter, string) {
		publish(t, store, "orders.dlq", letter("id-1", "{}"))
		var theirs []fixture.Taken
		eventually(t, "it is taken over, when no renewal has it locked", func() bool {
			var err error
			theirs, err = fixture.Take(context.Background(), store, letters.Filter{IDs: []string{"id-1"}}, time.Hour, 10)
			testkit.Check(t, err == nil, "%v", err)
			return err != nil || len(theirs) > 0
		})
		taken <- theirs
		time.Sleep(lease/2 + lease/8) // more than half of the lease
	}
	r := drain(t, store, out, config) // both are in hand
	theirs := <-taken
	testkit.Require(t, len(theirs) == 1 && len(out.All()) == 1 && r.Redriven == 1 && r.LeasesLost == 1,
		"%+v, %d taken over", r, len(theirs))
	testkit.NoError(t, fixture.Mark(t.Context(), store, theirs[0], letters.StatusRedriven, letters.Act{}))
}

// Feature V5, promise P1: a letter that another transaction has locked is not passed over for good.
func TestDrain_comesBackForLockedLetters(t *testing.T) {
	for _, on := range []database{postgresSchema, mysqlDatabase} {
		t.Run(on.Name, func(t *testing.T) {
			db := on.Create(t)()
			store, out := storeOn(t, db), &outbox{}
			publish(t, store, "orders.dlq", several(3)...)
			writer := testkit.Must(db.Begin())
			defer func() { _ = writer.Rollback() }()
			testkit.Must(writer.Exec(`UPDATE spillway_dead_letters SET seen = 2 WHERE seq = 1`))
			out.Before = func(_ string, msg *message.Message) error {
				if msg.UUID == "id-2" {
					return writer.Commit()
				}
				return nil
			}
			r, ids := drain(t, store, out, orders), out.IDs()
			testkit.Check(t, r.Redriven == 3 && len(ids) == 3 && out.All()[2].Msg.UUID == "id-0", "%+v, %v", r, ids)
		})
	}
}

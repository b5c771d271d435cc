package redrive_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Decision 12, promise P6: drains of two processes share the letters, and none is published twice.
func TestDrain_twoProcesses(t *testing.T) { onEach(t, testDrain_twoProcesses) }

func testDrain_twoProcesses(t *testing.T, on database) {
	open, out := on.Create(t), &outbox{}
	stores := []*letters.Store{storeOn(t, open()), storeOn(t, open())}
	publish(t, stores[0], "orders.dlq", several(400)...)
	var both sync.WaitGroup
	var redriven atomic.Int64
	for _, store := range stores {
		both.Go(func() {
			report, err := redrive.Drain(context.Background(), store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, Concurrency: 3}})
			if err != nil {
				t.Error(err)
			}
			redriven.Add(int64(report.Redriven))
		})
	}
	both.Wait()
	if n := len(out.All()); redriven.Load() != 400 || n != 400 || len(out.IDs()) != 400 {
		t.Errorf("%d redriven, %d published, of %d ids", redriven.Load(), n, len(out.IDs()))
	}
	wantCount(t, stores[0], status(letters.StatusRedriven), 400)
}

// Feature V5, promise P1: two drains at once with disjoint filters bring back every letter that they choose.
func TestDrain_disjointFilters(t *testing.T) { onEach(t, testDrain_disjointFilters) }

func testDrain_disjointFilters(t *testing.T, on database) {
	const each = 300
	open, out := on.Create(t), &outbox{}
	first := storeOn(t, open())
	publish(t, first, "orders.dlq", fixture.OfTwo(2*each)...)
	var both sync.WaitGroup
	for _, handler := range []string{"a", "b"} {
		store := storeOn(t, open())
		both.Go(func() {
			report, err := redrive.Drain(t.Context(), store, out, redrive.DrainConfig{
				Rules: redrive.Rules{
					Allow: []string{"orders"}, Filter: letters.Filter{Handlers: []string{handler}}, Concurrency: 4,
				},
			})
			if err != nil || report.Redriven != each {
				t.Errorf("handler %s: %+v, %v", handler, report, err)
			}
		})
	}
	both.Wait()
	wantCount(t, first, letters.Filter{}, 0)
	if n := len(out.All()); n != 2*each || len(out.IDs()) != n {
		t.Errorf("%d published, %d ids", n, len(out.IDs()))
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

// Promise P1: a lease that ended in the wait for a slow rate is renewed before the publish, and a letter that another
// drain took over meanwhile is left to that drain.
func TestDrain_renewsLeases(t *testing.T) { onEach(t, testDrain_renewsLeases) }

func testDrain_renewsLeases(t *testing.T, on database) {
	store, out := on.NewStore(t), &outbox{}
	publish(t, store, "orders.dlq", several(4)...)
	r := drain(t, store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, Rate: 20, Concurrency: 2}}.Leasing(5*time.Millisecond))
	if r.Redriven != 4 || r.LeasesLost != 0 {
		t.Fatalf("%+v", r)
	}
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
		if err != nil {
			t.Error(err)
		}
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
	if r := drain(t, store, slow, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}}}.Leasing(time.Second)); r.Redriven != 3 {
		t.Errorf("%+v", r)
	}
}

// Decision 12: a letter that arrives again while the drain waits for its turn, and that another then takes, is not
// published by the drain.
func TestDrain_leavesWhatWasTakenOver(t *testing.T) { onEach(t, testDrain_leavesWhatWasTakenOver) }

func testDrain_leavesWhatWasTakenOver(t *testing.T, on database) {
	const lease = 2 * time.Second // the disk may stand still for a while
	store, out := on.NewStore(t), &outbox{}
	publish(t, store, "orders.dlq", several(2)...)
	taken := make(chan []fixture.Taken, 1)
	r := drain(t, store, out, redrive.DrainConfig{
		Rules: redrive.Rules{
			Allow: []string{"orders"},
			Hooks: redrive.Hooks{OnRedrive: func(context.Context, poison.Letter, string) {
				publish(t, store, "orders.dlq", letter("id-1", "{}"))
				theirs, err := fixture.Take(context.Background(), store, letters.Filter{IDs: []string{"id-1"}}, time.Hour, 10)
				if err != nil {
					t.Error(err)
				}
				taken <- theirs
				time.Sleep(lease/2 + lease/8) // more than half of the lease
			}},
		},
	}.Leasing(lease)) // both are in hand
	theirs := <-taken
	if len(theirs) != 1 || len(out.All()) != 1 || r.Redriven != 1 || r.LeasesLost != 1 {
		t.Fatalf("%+v, %d taken over", r, len(theirs))
	}
	testkit.NoError(t, fixture.Mark(t.Context(), store, theirs[0], letters.StatusRedriven, letters.Act{}))
}

// Feature V5, promise P1: a letter that another transaction has locked when its turn comes is not passed over for good:
// the drain ends only when it finds no letter that waits.
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
			if r := drain(t, store, out, orders); r.Redriven != 3 || len(out.IDs()) != 3 || out.All()[2].Msg.UUID != "id-0" {
				t.Errorf("%+v, %v", r, out.IDs())
			}
		})
	}
}

// Promise P1: a letter that steps back or comes again gets a number that no other letter has, also when many are given
// out meanwhile, and so overwrites none.
func TestDrain_mysqlNumbers(t *testing.T) {
	open := mysqlDatabase.Create(t)
	db := open()
	store := storeOn(t, db)
	publish(t, store, "orders.dlq", several(20)...)
	refusing := &outbox{Before: refuse}
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 10 {
				publish(t, store, "orders.dlq", letter(fmt.Sprintf("new-%d-%d", i, j), "{}"))
				_, _ = redrive.Drain(t.Context(), store, refusing, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, PublishAttempts: 1}, Max: 2})
			}
		})
	}
	all.Wait()
	wantCount(t, store, letters.Filter{}, 60)
	ids := make(map[string]bool)
	for _, e := range list(t, store, letters.Filter{}) {
		ids[e.Letter.Original.UUID] = true
		if string(e.Letter.Original.Payload) != "{}" || e.Letter.Origin.Topic != "orders" || e.Seen != 1 {
			t.Errorf("letter %d was overwritten: %+v", e.Seq, e)
		}
	}
	if len(ids) != 60 {
		t.Errorf("%d letters", len(ids))
	}
}

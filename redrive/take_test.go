package redrive_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

func by(handler string) func(*poison.Letter) {
	return func(l *poison.Letter) { l.Origin.Handler = handler }
}

// ofTwo are n letters, of the handlers a and b in turn.
func ofTwo(n int) []*message.Message {
	messages := make([]*message.Message, n)
	for i := range messages {
		messages[i] = letter(fmt.Sprintf("id-%d", i), "{}", by(string(rune('a'+i%2))))
	}
	return messages
}

// Feature V5, promise P1: two drains at once with disjoint filters bring back every letter that they choose.
func TestDrain_disjointFilters(t *testing.T) { onEach(t, testDrain_disjointFilters) }

func testDrain_disjointFilters(t *testing.T, on database) {
	const each = 1000
	open, out := on.create(t), &outbox{}
	first := storeOn(t, open())
	publish(t, first, "orders.dlq", ofTwo(2*each)...)
	var both sync.WaitGroup
	for _, handler := range []string{"a", "b"} {
		store := storeOn(t, open())
		both.Go(func() {
			report, err := store.Drain(t.Context(), out, redrive.DrainConfig{
				Allow: []string{"orders"}, Filter: redrive.Filter{Handlers: []string{handler}}, Concurrency: 4,
			})
			if err != nil || report.Redriven != each {
				t.Errorf("handler %s: %+v, %v", handler, report, err)
			}
		})
	}
	both.Wait()
	wantCount(t, first, redrive.Filter{}, 0)
	if n := len(out.all()); n != 2*each || len(out.ids()) != n {
		t.Errorf("%d published, %d ids", n, len(out.ids()))
	}
}

// Promise P4: a Take locks what it takes, and no letter that it only looks at: a Mark of another one does not wait for it.
func TestStore_selectiveTakeLocksNoOther(t *testing.T) {
	for _, on := range []database{postgresSchema, mysqlDatabase} {
		t.Run(on.name, func(t *testing.T) {
			db := on.create(t)()
			publish(t, storeOn(t, db), "orders.dlq", ofTwo(60)...)
			free := -1
			store := storeOn(t, beforeCommit(t, db, func() {
				free = -1
				rows, err := db.Query(`SELECT seq FROM spillway_dead_letters FOR UPDATE SKIP LOCKED`)
				if err != nil {
					t.Error(err)
					return
				}
				defer func() { _ = rows.Close() }()
				for free = 0; rows.Next(); free++ {
				}
				if err := rows.Err(); err != nil {
					t.Error(err)
				}
			}))
			taken, err := store.Take(t.Context(), redrive.Filter{Handlers: []string{"b"}}, time.Hour, 10)
			if err != nil || len(taken) != 10 || free != 50 {
				t.Errorf("%d taken, %v; %d of 50 others free", len(taken), err, free)
			}
		})
	}
}

// Promise P4: on SQLite a Take waits for the writer only if there is something to take.
func TestStore_sqliteSelectiveTakeNeedsNoWriter(t *testing.T) {
	open := sqliteFile.create(t)
	db := open()
	store := storeOn(t, db)
	publish(t, store, "orders.dlq", ofTwo(10)...)
	writer, err := open().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = writer.Close() }()
	if _, err := writer.ExecContext(t.Context(), `BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	taken, err := store.Take(ctx, redrive.Filter{Handlers: []string{"c"}}, time.Hour, 10)
	if err != nil || len(taken) != 0 {
		t.Errorf("%d taken, %v", len(taken), err)
	}
	if _, err := writer.ExecContext(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
}

// Decision 12: leases end by the database's clock, whatever that of a process says.
func TestStore_leasesByTheDatabasesClock(t *testing.T) {
	dsn := mysqltest.Database(t)
	at := func(shift time.Duration) *redrive.Store { // a store whose database says that it is now and shift
		now := float64(time.Now().Add(shift).UnixMilli()) / 1000
		return storeOn(t, mysqltest.Open(t, mysqltest.With(dsn, fmt.Sprintf("timestamp=%.3f", now))))
	}
	publish(t, at(0), "orders.dlq", letter("1", "a"))
	for _, step := range []struct {
		shift time.Duration
		want  int
	}{{48 * time.Hour, 1}, {48*time.Hour + 30*time.Minute, 0}, {50 * time.Hour, 1}, {0, 0}} {
		taken, err := at(step.shift).Take(t.Context(), redrive.Filter{}, time.Hour, 1)
		if err != nil || len(taken) != step.want {
			t.Fatalf("at %s: %d taken, %v, want %d", step.shift, len(taken), err, step.want)
		}
	}
}

// Promise P1: a drain renews the leases of all letters in hand for as long as its publisher takes.
func TestDrain_renewsWhilePublishing(t *testing.T) { onEach(t, testDrain_renewsWhilePublishing) }

func testDrain_renewsWhilePublishing(t *testing.T, on database) {
	db := on.create(t)()
	store, out := storeOn(t, db), &outbox{}
	publish(t, store, "orders.dlq", letters(3)...)
	ends := func() (first, n int64) {
		err := db.QueryRow(`SELECT COALESCE(MIN(leased_until), 0), COUNT(*) FROM spillway_dead_letters WHERE token <> ''`).Scan(&first, &n)
		if err != nil {
			t.Error(err)
		}
		return first, n
	}
	slow := publisherFunc(func(topic string, messages ...*message.Message) error {
		if len(out.all()) == 0 {
			before, n := ends()
			eventually(t, "the leases of all three letters are renewed", func() bool {
				first, still := ends()
				return n == 3 && still == 3 && first > before
			})
		}
		return out.Publish(topic, messages...)
	})
	if r := drain(t, store, slow, redrive.DrainConfig{Allow: []string{"orders"}, Lease: time.Second}); r.Redriven != 3 {
		t.Errorf("%+v", r)
	}
}

// Promises P1, P3: when the context of a drain ends, letters that were not begun are free at once, and do not wait for a
// publisher that is stuck. The letter in hand stays leased until the publisher returns.
func TestDrain_endsWhileAPublisherIsStuck(t *testing.T) {
	onEach(t, testDrain_endsWhileAPublisherIsStuck)
}

func testDrain_endsWhileAPublisherIsStuck(t *testing.T, on database) {
	store, out := on.newStore(t), &outbox{}
	publish(t, store, "orders.dlq", letters(5)...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	free := 0
	stuck := publisherFunc(func(topic string, messages ...*message.Message) error {
		cancel()
		eventually(t, "the four others are free", func() bool {
			taken, err := store.Take(t.Context(), redrive.Filter{}, time.Hour, 10)
			if err != nil {
				t.Error(err)
			}
			free += len(taken)
			return free == 4
		})
		return out.Publish(topic, messages...)
	})
	report, err := store.Drain(ctx, stuck, redrive.DrainConfig{Allow: []string{"orders"}})
	if err == nil || report.Redriven != 1 || report.Taken != 1 {
		t.Errorf("%+v, %v", report, err)
	}
}

// Feature V5, promise P1: a letter that another transaction has locked when its turn comes is not passed over for good: the
// drain ends only when it finds no letter that waits.
func TestDrain_comesBackForLockedLetters(t *testing.T) {
	for _, on := range []database{postgresSchema, mysqlDatabase} {
		t.Run(on.name, func(t *testing.T) {
			db := on.create(t)()
			store, out := storeOn(t, db), &outbox{}
			publish(t, store, "orders.dlq", letters(3)...)
			writer, err := db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = writer.Rollback() }()
			if _, err := writer.Exec(`UPDATE spillway_dead_letters SET seen = 2 WHERE seq = 1`); err != nil {
				t.Fatal(err)
			}
			out.before = func(_ string, msg *message.Message) error {
				if msg.UUID == "id-2" {
					return writer.Commit()
				}
				return nil
			}
			if r := drain(t, store, out, orders); r.Redriven != 3 || len(out.ids()) != 3 || out.all()[2].msg.UUID != "id-0" {
				t.Errorf("%+v, %v", r, out.ids())
			}
		})
	}
}

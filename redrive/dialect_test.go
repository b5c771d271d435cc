package redrive_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

// Promises P1, P2: text that came with a message is kept and chosen by whatever it holds, NUL and what is not UTF-8
// included, and so is what a caller says.
func TestStore_hostileText(t *testing.T) { onEach(t, testStore_hostileText) }

func testStore_hostileText(t *testing.T, on database) {
	store, ctx := on.newStore(t), t.Context()
	hostile := "a\x00b\xff'; DROP TABLE spillway_dead_letters; --?$1"
	bad := message.NewMessage("1", nil)
	for _, key := range []string{
		poison.KeyFailureReason, poison.KeyFailureDescription, poison.KeyFailureType, poison.KeyFailureStackHash,
		poison.KeyFailureClass, poison.KeyOriginalTopic, poison.KeyOriginalHandler, poison.KeyRedrivenBy, poison.KeyRedriveID,
	} {
		bad.Metadata.Set(key, hostile)
	}
	clean := letter("2", "{}", func(l *poison.Letter) {
		l.Failure.Reason, l.Failure.Type, l.Failure.StackHash, l.Failure.Description = hostile, hostile, hostile, hostile
	})
	publish(t, store, hostile, bad, clean)
	entries := list(t, store, redrive.Filter{})
	if len(entries) != 2 || entries[0].DeadLetterTopic != hostile {
		t.Fatalf("%+v", entries)
	}
	for _, e := range entries {
		failure := e.Letter.Failure
		for name, f := range map[string]redrive.Filter{
			"Reasons":   {Reasons: []string{failure.Reason, hostile}, IDs: []string{e.Letter.Original.UUID}},
			"StackHash": {StackHash: failure.StackHash, IDs: []string{e.Letter.Original.UUID}},
		} {
			if n, err := store.Count(ctx, f); err != nil || n != 1 {
				t.Errorf("%s of %s: %d, %v", name, e.Letter.Original.UUID, n, err)
			}
		}
	}
	groups, err := store.Groups(ctx, redrive.Filter{})
	if err != nil || !slices.ContainsFunc(groups, func(g redrive.Group) bool { return g.Description == entries[1].Letter.Failure.Description }) {
		t.Errorf("%+v, %v", groups, err)
	}
	taken, err := store.Take(ctx, redrive.Filter{}, time.Hour, 10)
	if err != nil || len(taken) != 2 {
		t.Fatal(taken, err)
	}
	forged := taken[0]
	forged.Token = hostile
	if err := store.Mark(ctx, forged, redrive.StatusDiscarded); !errors.Is(err, redrive.ErrLeaseLost) {
		t.Error(err)
	}
	taken[0].By = hostile
	if err := store.Mark(ctx, taken[0], redrive.StatusDiscarded); err != nil {
		t.Fatal(err)
	}
	if e := list(t, store, status(redrive.StatusDiscarded)); len(e) != 1 || e[0].Marked.By != hostile {
		t.Errorf("%+v", e)
	}
}

// Decision 12, promise P6: drains of two processes share the letters, and none is published twice.
func TestDrain_twoProcesses(t *testing.T) { onEach(t, testDrain_twoProcesses) }

func testDrain_twoProcesses(t *testing.T, on database) {
	open, out := on.create(t), &outbox{}
	stores := []*redrive.Store{storeOn(t, open()), storeOn(t, open())}
	publish(t, stores[0], "orders.dlq", letters(400)...)
	var both sync.WaitGroup
	var redriven atomic.Int64
	for _, store := range stores {
		both.Go(func() {
			report, err := store.Drain(context.Background(), out, redrive.DrainConfig{Allow: []string{"orders"}, Concurrency: 3})
			if err != nil {
				t.Error(err)
			}
			redriven.Add(int64(report.Redriven))
		})
	}
	both.Wait()
	if n := len(out.all()); redriven.Load() != 400 || n != 400 || len(out.ids()) != 400 {
		t.Errorf("%d redriven, %d published, of %d ids", redriven.Load(), n, len(out.ids()))
	}
	wantCount(t, stores[0], status(redrive.StatusRedriven), 400)
}

// Promise P1: letters of several processes at once, in opposite orders, get in each other's way and are stored all.
func TestStore_publishInOppositeOrders(t *testing.T) { onEach(t, testStore_publishInOppositeOrders) }

func testStore_publishInOppositeOrders(t *testing.T, on database) {
	open := on.create(t)
	stores := []*redrive.Store{storeOn(t, open()), storeOn(t, open())}
	var publishers sync.WaitGroup
	for i := range 8 {
		publishers.Go(func() {
			batch := letters(20)
			if i%2 == 1 {
				slices.Reverse(batch)
			}
			if err := stores[i%2].Publish("orders.dlq", batch...); err != nil {
				t.Error(err)
			}
		})
	}
	publishers.Wait()
	for _, e := range list(t, stores[0], redrive.Filter{}) {
		if e.Seen != 8 {
			t.Fatalf("letter %d was seen %d times", e.Seq, e.Seen)
		}
	}
	wantCount(t, stores[0], redrive.Filter{}, 20)
}

// Promise P1: whatever connections are lost during a drain, every letter comes back.
func TestDrain_connectionsLost(t *testing.T) {
	t.Run(postgresSchema.name, func(t *testing.T) {
		address := postgrestest.Schema(t)
		testDrain_connectionsLost(t, postgrestest.Open(t, address), postgrestest.Open(t, address+"&application_name=spillway-drain"),
			func(observer *sql.DB) error {
				_, err := observer.Exec(`SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'spillway-drain'`)
				return err
			})
	})
	t.Run(mysqlDatabase.name, func(t *testing.T) {
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
	publish(t, store, "orders.dlq", letters(60)...)
	killed := make(map[string]bool)
	out.before = func(_ string, msg *message.Message) error {
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
		_, _ = draining.Drain(t.Context(), out, redrive.DrainConfig{Allow: []string{"orders"}, Lease: 50 * time.Millisecond})
		n, err := store.Count(t.Context(), status(redrive.StatusRedriven))
		return err == nil && n == 60
	})
	if len(killed) != 2 || len(out.ids()) != 60 {
		t.Errorf("killed at %v, %d letters came back", killed, len(out.ids()))
	}
}

// Feature V9: many processes may make the store at once, and a table of another shape is refused.
func TestStore_postgresConstruction(t *testing.T) {
	address := postgrestest.Schema(t)
	var makers sync.WaitGroup
	for range 10 {
		db := postgrestest.Open(t, address)
		if err := db.Ping(); err != nil {
			t.Fatal(err)
		}
		makers.Go(func() {
			store, err := redrive.NewStore(redrive.StoreConfig{DB: db})
			if err == nil {
				err = store.InitializeTopics("orders.dlq")
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	makers.Wait()
	readOnly := postgrestest.Open(t, address+"&default_transaction_read_only=on")
	if err := storeOn(t, readOnly).InitializeTopics("orders.dlq"); err == nil {
		t.Error("a read-only database is an error")
	}
	db := postgresSchema.create(t)()
	if _, err := db.Exec(`CREATE TABLE spillway_dead_letters (seq bigint PRIMARY KEY)`); err != nil {
		t.Fatal(err)
	}
	if _, err := redrive.NewStore(redrive.StoreConfig{DB: db}); err == nil || !strings.Contains(err.Error(), "StoreConfig.DB") {
		t.Error(err)
	}
}

package frontdoor_test

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/shop"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func crashStore(t testing.TB, db *sql.DB) *crashlimit.Store {
	return testkit.Must(crashlimit.NewStore(t.Context(), db, "shop"))
}

// Feature D10: a channel with a database and a crash limit registers its process while the router runs, and signs off
// before the router has closed.
func TestDeliveriesRegister(t *testing.T) {
	b := newBench(t, true)
	dlc, err := spillway.New(t.Context(), spillway.Config{Publisher: b.Letters, DB: b.DB, CrashLimit: &crashlimit.Config{Max: 3}})
	testkit.NoError(t, err)
	registered := make(chan int, 1)
	stop := b.Run(dlc.Attach, func(msg *message.Message) ([]*message.Message, error) {
		registered <- b.Count("spillway_processes")
		return nil, b.Apply(msg)
	})
	b.Publish(message.NewMessage("1", nil))
	testkit.Equal(t, "processes are registered while a handler runs", <-registered, 1)
	stop()
	if n, marks := b.Count("spillway_processes"), b.Count("spillway_deliveries"); n != 0 || marks != 0 {
		t.Errorf("%d processes and %d marks are left", n, marks)
	}
}

// Feature I8: a channel with a retention purges its keys while the router runs.
func TestPurgeRuns(t *testing.T) {
	b := newBench(t, true)
	purged := make(chan int, 10)
	dlc, err := spillway.New(t.Context(), spillway.Config{Publisher: b.Letters, Idempotency: shop.KeysOf(t, b.DB), Purge: &idempotency.PurgeConfig{
		Retention: time.Millisecond, Horizon: time.Millisecond, Every: 20 * time.Millisecond,
		OnRun: func(_ context.Context, n int, _ error) {
			if n > 0 {
				purged <- n
			}
		},
	}})
	testkit.NoError(t, err)
	stop := b.Run(dlc.Attach, func(msg *message.Message) ([]*message.Message, error) { return nil, b.Apply(msg) })
	defer stop()
	b.Publish(message.NewMessage("1", nil))
	n := <-purged
	testkit.Check(t, n == 1, "purged %d keys", n)
	testkit.Equal(t, "effects", len(b.Effects()), 1)
}

// Feature D14: a channel with rules deletes old letters of its store while the router runs, and says that it looked.
func TestRetentionRuns(t *testing.T) {
	b := newBench(t, true)
	looks := make(chan error, 100)
	var deleted atomic.Int64
	dlc := testkit.Must(
		spillway.New(t.Context(), spillway.Config{DB: b.DB, Service: "shop", Retention: &letters.RetentionConfig{
			Rules: []letters.RetentionRule{{Statuses: []letters.Status{letters.StatusWaiting}, OlderThan: time.Microsecond}},
			OnRun: func(_ context.Context, n int, err error) { deleted.Add(int64(n)); looks <- err },
		}}))
	testkit.NoError(t, dlc.Letters().Publish("orders.dlq", message.NewMessage("1", nil)))
	stop := b.Run(dlc.Attach, func(*message.Message) ([]*message.Message, error) { return nil, nil })
	defer stop()
	err := testkit.Receive(t, "the retention looks", looks)
	testkit.Check(t, deleted.Load() == 1 && err == nil, "%d letters are deleted, %v", deleted.Load(), err)
}

// Feature D10: a channel tells messages without an id apart by the coordinates that its adapter knows, and by nothing
// else.
func TestDeliveriesCoordinates(t *testing.T) {
	b := newBench(t, true)
	known := map[string]poison.Origin{"a": {Topic: "orders", Partition: "0", Offset: "7"}, "b": {Topic: "orders", Partition: "0", Offset: "8"}}
	dlc := testkit.Must(spillway.New(t.Context(), spillway.Config{
		Publisher: b.Letters, CrashLimit: &crashlimit.Config{Store: crashStore(t, b.DB)},
		Queue: poison.QueueConfig{Origin: func(msg *message.Message) poison.Origin { return known[string(msg.Payload)] }},
	}))
	if _, err := b.DB.Exec(`INSERT INTO spillway_processes (service, id, node, beat_ms, started_at, beats, lost_at) VALUES ('shop', 'gone', '', 0, 0, 0, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))`); err != nil {
		t.Fatal(err)
	}
	stop := b.Run(dlc.Attach, func(msg *message.Message) ([]*message.Message, error) {
		var id string
		if err := b.DB.QueryRow(`SELECT id FROM spillway_deliveries`).Scan(&id); err != nil {
			return nil, err
		}
		if want := map[string]string{"a": "orders/0/7", "b": "orders/0/8"}[string(msg.Payload)]; want != "" && id != want || want == "" && len(id) != 64 {
			t.Errorf("%s has the mark %s", msg.Payload, id)
		}
		return nil, b.Apply(msg)
	})
	defer stop()
	for i, payload := range []string{"a", "b", "c"} {
		b.Publish(message.NewMessage("", []byte(payload)))
		b.Eventually("it is handled, and its mark is gone", func() bool {
			var marks int
			err := b.DB.QueryRow(`SELECT count(*) FROM spillway_deliveries`).Scan(&marks)
			return len(b.Effects()) == i+1 && err == nil && marks == 0
		})
	}
}

// Features O1, O2, O4, bad input: an observer that is nil, or named twice, is an error with a sentence.
func TestObserversAreNamedOnce(t *testing.T) {
	metrics := &counting{}
	for want, observers := range map[string][]spillway.Observer{
		"Config.Observers[0] is nil": {(*counting)(nil)},
		"would count twice":          {metrics, metrics},
	} {
		testkit.Says(t, testkit.Err(spillway.New(t.Context(), spillway.Config{Observers: observers})), want)
	}
}

type counting struct{ n int }

func (c *counting) Observe(*spillway.Config) error { c.n++; return nil }

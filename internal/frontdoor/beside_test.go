package frontdoor_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func crashStore(t testing.TB, db *sql.DB) *crashlimit.Store {
	return testkit.Must(crashlimit.NewStore(t.Context(), db, "shop"))
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

// Features D10, I8, D14: while the router runs, a channel registers its process, purges keys and deletes old letters.
// It signs off before the router has closed.
func TestRunsBesideTheRouter(t *testing.T) {
	b := newBench(t, true)
	purged, deleted, registered := make(chan int, 100), make(chan int, 100), make(chan int, 1)
	dlc := testkit.Must(spillway.New(t.Context(), spillway.Config{DB: b.DB, Service: "shop",
		CrashLimit: &crashlimit.Config{Max: 3},
		Purge: &idempotency.PurgeConfig{Retention: time.Millisecond, Horizon: time.Millisecond, Every: time.Millisecond,
			OnRun: func(_ context.Context, n int, err error) {
				if n > 0 || err != nil {
					purged <- n
				}
			}},
		Retention: &letters.RetentionConfig{
			Rules: []letters.RetentionRule{{Statuses: []letters.Status{letters.StatusWaiting}, OlderThan: 1}},
			OnRun: func(_ context.Context, n int, _ error) { deleted <- n },
		}}))
	testkit.NoError(t, dlc.Letters().Publish("orders.dlq", message.NewMessage("1", nil)))
	stop := b.Run(dlc.Attach, func(msg *message.Message) ([]*message.Message, error) {
		registered <- b.Count("spillway_processes")
		return nil, b.Apply(msg)
	})
	b.Publish(message.NewMessage("1", nil))
	testkit.Equal(t, "registered processes", testkit.Receive(t, "it is handled", registered), 1)
	testkit.Equal(t, "purged keys", testkit.Receive(t, "keys are purged", purged), 1)
	testkit.Equal(t, "deleted letters", testkit.Receive(t, "letters are deleted", deleted), 1)
	stop()
	testkit.Equal(t, "processes and marks", b.Count("spillway_processes")+b.Count("spillway_deliveries"), 0)
}

type counting struct{ n int }

func (c *counting) Observe(*spillway.Config) error { c.n++; return nil }

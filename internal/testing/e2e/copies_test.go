package e2e_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/redelivering"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/middleware/crashlimit/sqlmarks"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// tally counts what is published, by topic and id. It refuses while refuse is set.
type tally struct {
	mu     sync.Mutex
	by     map[string]int
	refuse bool
}

func (p *tally) Publish(topic string, messages ...*message.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, msg := range messages {
		if p.refuse {
			return classify.Unavailable(errors.New("the broker is unavailable"))
		}
		p.by[topic+"/"+msg.UUID]++
	}
	return nil
}

func (p *tally) Close() error { return nil }

func (p *tally) setRefuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// Feature R5b: messages that are held for longer than the broker waits are not lost, handled or dead-lettered twice.
func TestHeldMessagesComeAgain(t *testing.T) {
	const messages = 20
	for name, row := range map[string]struct {
		after, says time.Duration
		parallel    int
		ends        bool
		outputs     bool // what is unavailable is the broker of outputs
		maxHold     time.Duration
	}{
		"known":                     {after: 2 * time.Second, says: 2 * time.Second, parallel: 40},
		"unknown, contexts end":     {after: 2 * time.Second, says: -1, parallel: 40, ends: true},
		"unknown, outputs":          {after: 2 * time.Second, says: -1, parallel: 40, outputs: true},
		"unknown, held for long":    {after: 30 * time.Second, says: -1, parallel: 40, maxHold: 10 * time.Minute},
		"one by one, held for long": {after: 30 * time.Second, says: -1, parallel: 1, maxHold: 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, dead, outs, log := redelivering.New(row.after), &tally{by: map[string]int{}}, &tally{by: map[string]int{}}, &testkit.Log{}
				p.Parallel, p.Ends = row.parallel, row.ends
				if p.Ahead = 1000; row.parallel == 1 {
					p.Ahead = 2
				}
				config := spillway.Config{Publisher: dead, Logger: log, Breaker: &breaker.Config{MaxHold: row.maxHold}}
				config.Outputs.MaxHold = row.maxHold
				ch := testkit.Must(spillway.New(context.Background(), config))
				router := testkit.Must(
					message.NewRouter(message.RouterConfig{CloseTimeout: time.Hour}, watermill.NopLogger{}))
				ch.Attach(router)
				var mu sync.Mutex
				beside, twice, calls, unavailable := map[string]bool{}, 0, map[string]int{}, true
				outs.refuse = row.outputs
				router.AddHandler("billing", "orders", p.Subscriber(row.says), "invoices", outs, func(msg *message.Message) ([]*message.Message, error) {
					mu.Lock()
					defer mu.Unlock()
					if beside[msg.UUID] {
						twice++
					}
					if unavailable && !row.outputs {
						return nil, classify.Unavailable(errors.New("the bank is unavailable"))
					}
					calls[msg.UUID]++
					beside[msg.UUID] = true
					mu.Unlock()
					time.Sleep(10 * time.Millisecond)
					mu.Lock()
					beside[msg.UUID] = false
					if msg.UUID[len(msg.UUID)-1]%2 == 0 {
						return nil, classify.Permanent(errors.New("poison"))
					}
					return []*message.Message{message.NewMessage("of "+msg.UUID, nil)}, nil
				})
				done := make(chan error, 1)
				go func() { done <- router.Run(context.Background()) }()
				<-router.Running()
				for i := range messages {
					testkit.NoError(t, p.Publish("orders", message.NewMessage(fmt.Sprint(i), []byte("p"))))
				}
				time.Sleep(2 * time.Minute)
				mu.Lock()
				unavailable = false
				mu.Unlock()
				outs.setRefuse(false)
				time.Sleep(20 * time.Minute)
				testkit.NoError(t, router.Close())
				<-done
				if len(dead.by) != messages/2 || len(outs.by) != messages/2 || p.Left() > 0 || twice > 0 {
					t.Errorf("%d dead-lettered and %d published of %d, %d left, %d handled beside themselves", len(dead.by), len(outs.by), messages, p.Left(), twice)
				}
				for id, n := range dead.by {
					testkit.Check(t, n == 1, "%s was dead-lettered %d times", id, n)
				}
				t.Logf("%d copies, %v", p.Copies(), calls)
			})
		})
	}
}

func crashStore(t testing.TB, db *sql.DB) crashlimit.Store {
	return testkit.Must(sqlmarks.NewStore(t.Context(), db, "shop"))
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
		want := map[string]string{"a": "orders/0/7", "b": "orders/0/8"}[string(msg.Payload)]
		testkit.Check(t, (want == "" || id == want) && (want != "" || len(id) == 64),
			"%s has the mark %s", msg.Payload, id)
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

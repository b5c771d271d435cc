package spillway_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/delivery"
	"github.com/watermill-spillway/spillway/idempotency"
)

// Feature D10: a channel with a store for deliveries registers its process while the router runs, and signs off before
// the router has closed.
func TestDeliveriesRegister(t *testing.T) {
	b := newBench(t, true)
	dlc, err := spillway.New(spillway.Config{Publisher: b.letters, Deliveries: delivery.LimitConfig{Store: delivery.SQLite(b.db)}})
	if err != nil {
		t.Fatal(err)
	}
	registered := make(chan int, 1)
	stop := b.run(dlc.Attach, func(msg *message.Message) ([]*message.Message, error) {
		registered <- b.count("spillway_processes")
		return nil, b.apply(msg)
	})
	b.publish(message.NewMessage("1", nil))
	if n := <-registered; n != 1 {
		t.Errorf("%d processes are registered while a handler runs", n)
	}
	stop()
	if n, marks := b.count("spillway_processes"), b.count("spillway_deliveries"); n != 0 || marks != 0 {
		t.Errorf("%d processes and %d marks are left", n, marks)
	}
}

// Feature I8: a channel with a retention purges its keys while the router runs.
func TestPurgeRuns(t *testing.T) {
	b := newBench(t, true)
	purged := make(chan int, 10)
	dlc, err := spillway.New(spillway.Config{Publisher: b.letters, Idempotency: idempotency.SQLite(b.db), Purge: idempotency.PurgeConfig{
		Retention: time.Millisecond, Horizon: time.Millisecond, Every: 20 * time.Millisecond,
		OnPurged: func(_ context.Context, n int) { purged <- n },
	}})
	if err != nil {
		t.Fatal(err)
	}
	stop := b.run(dlc.Attach, func(msg *message.Message) ([]*message.Message, error) { return nil, b.apply(msg) })
	defer stop()
	b.publish(message.NewMessage("1", nil))
	if n := <-purged; n != 1 {
		t.Errorf("purged %d keys", n)
	}
	if got := b.effects(); len(got) != 1 {
		t.Errorf("effects %q", got)
	}
}

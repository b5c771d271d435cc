package campaigns_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V7, promise P4: a router that closes waits for the letters in hand, and they are marked. No other is begun,
// and other workers can have those at once: each letter is published once.
func TestClose(t *testing.T) {
	store := fixture.SQLite.NewStore(t)
	all := open(t, store, config)
	fixture.Publish(t, store, "orders.dlq", fixture.Several(20)...)
	begun, goOn, closed := make(chan string, 20), make(chan struct{}), make(chan struct{})
	var closing atomic.Bool
	out := &fixture.Outbox{Before: func(_ string, msg *message.Message) error {
		if closing.Load() {
			t.Errorf("%s was begun while the router closes", msg.UUID)
		}
		begun <- msg.UUID
		<-goOn
		return nil
	}}
	lasting := campaigns.WorkerConfig{Poll: 5 * time.Millisecond, Lease: time.Hour}
	worker := testkit.Must(campaigns.NewWorker(all, out, lasting))
	stop := testkit.RunRouter(t, watermill.NopLogger{}, func(r *message.Router) {
		r.AddPlugin(worker.Plugin)
		live := gochannel.NewGoChannel(gochannel.Config{}, nil)
		r.AddConsumerHandler("billing", "orders", live, func(*message.Message) error { return nil })
	})
	r := request
	r.Concurrency = 2
	c := start(t, all, r)
	first := map[string]bool{testkit.Receive(t, "a letter", begun): true, testkit.Receive(t, "another", begun): true}
	closing.Store(true)
	go func() { defer close(closed); stop() }()
	testkit.Eventually(t, "letters that were not begun are released", func() bool {
		n := 0
		err := store.Inside().DB().QueryRow(`SELECT COUNT(*) FROM spillway_dead_letters WHERE leased_until > 0 AND token <> x''`).Scan(&n)
		return err == nil && n == len(first)
	})
	select {
	case <-closed:
		t.Error("the router did not wait for the letters in hand")
	default:
	}
	close(goOn)
	testkit.Receive(t, "the router's end", closed)
	marked := fixture.List(t, store, fixture.Status(letters.StatusRedriven))
	if len(marked) != 2 || !first[marked[0].Original.UUID] || !first[marked[1].Original.UUID] {
		t.Errorf("%d letters are marked, of %s", len(marked), fmt.Sprint(first))
	}
	closing.Store(false)
	run(t, all, out, lasting)
	reach(t, all, c.ID, campaigns.Finished)
	wantIDs(t, out, 20)
}

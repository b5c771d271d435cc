package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

var leasedRows = []row{
	{"I3-held", "a duplicate while the first is at work is given back, not set aside and not counted as a failure", (*cell).leasedElsewhere},
	{"I3-lease", "a lease is waited for, held, over, and lost as Store.Lease says", (*cell).leaseContract},
	{"I3-modes", "what one mode applied the other absorbs, and what is leased no transaction takes", (*cell).leasedModes},
}

// atWork is a configuration with leases, in which who is put back comes again soon.
func atWork(config idempotency.ReceiverConfig) idempotency.ReceiverConfig {
	if config.Lease == 0 {
		config.Lease = time.Hour
	}
	*idempotency.RequeueAfter(&config) = 2 * time.Millisecond
	return config
}

// outside is a handler with an effect outside of SQL, whose fences must rise.
type outside struct {
	c     *cell
	calls atomic.Int64
	fence atomic.Int64
	then  func(*message.Message) error // after the effect, if set
}

func (o *outside) handle(msg *message.Message) ([]*message.Message, error) {
	o.calls.Add(1)
	fence, ok := idempotency.Fence(msg.Context())
	if before := o.fence.Swap(fence); !ok || fence <= before || idempotency.Tx(msg.Context()) != nil {
		o.c.Errorf("fence %d, %v after %d", fence, ok, before)
	}
	if o.then != nil {
		if err := o.then(msg); err != nil {
			return nil, err
		}
	}
	return []*message.Message{message.NewMessage("", []byte("of "+msg.UUID))}, nil
}

// called fails unless the handler was called so often.
func (o *outside) called(want int64) {
	o.c.Helper()
	if n := o.calls.Load(); n != want {
		o.c.Errorf("%d calls of the handler, want %d", n, want)
	}
}

// Features I3, promises P1, P3: eight deliveries at once, each on a router's terms: who is put back comes again.
func (c *cell) leasedElsewhere() {
	free := make(chan struct{})
	release := sync.OnceFunc(func() { close(free) })
	defer release()
	h := &outside{c: c, then: func(*message.Message) error { <-free; return nil }}
	var back atomic.Int64
	config := spillway.Config{Publisher: &paper{t: c, path: filepath.Join(c.TempDir(), "dead")}, Idempotency: c.store(c.db)}
	config.Retry = middleware.RetryConfig{Attempts: 2, Hooks: middleware.RetryHooks{OnAttempt: func(_ context.Context, a middleware.Attempt) {
		testkit.Check(c, a.Err == nil, "counted as a failure: %v", a.Err)
	}}}
	leasing := atWork(idempotency.ReceiverConfig{Consumer: "billing", Hooks: idempotency.Hooks{OnRequeue: func(_ context.Context, key idempotency.Key) {
		testkit.Equal(c, "put back", key, (idempotency.Key{Consumer: "shop/billing", ID: "m1"}))
		if back.Add(1) == 20 {
			release()
		}
	}}})
	config.Receiver = &leasing
	ch := newChannel(c, config).Middleware(h.handle)
	atOnce(c.T, 8, func(int) error {
		for {
			out, err := ch(newMessage("m1"))
			if err == nil && (len(out) != 1 || string(out[0].Payload) != "of m1") {
				return fmt.Errorf("returned %v", out)
			}
			if err == nil {
				return nil
			}
			if !requeued(err) || !errors.Is(err, idempotency.ErrHeld) {
				release()
				return fmt.Errorf("judged %s: %w", class(err), err)
			}
			c.explains(err)
		}
	})
	h.called(1)
	letters := config.Publisher.(*paper).read()
	testkit.Check(c, len(letters) <= 0, "dead letters: %+v", letters)
}

// Features I2, I3: a consumer may change its mode between two deliveries.
func (c *cell) leasedModes() {
	config := idempotency.ReceiverConfig{}
	*idempotency.RequeueAfter(&config) = 1
	transactions, leases := c.receiver(config), c.receiver(atWork(idempotency.ReceiverConfig{}))
	h := &outside{c: c}
	first, err := transactions.Middleware(c.produce)(newMessage("m1"))
	again, leased := leases.Middleware(h.handle)(newMessage("m1"))
	if err != nil || leased != nil || len(first) != 1 || len(again) != 1 || first[0].UUID != again[0].UUID {
		c.Fatal(first, err, again, leased)
	}
	_, err = leases.Middleware(h.handle)(message.NewMessage("m1", []byte("other")))
	testkit.Equal(c, "another payload", reason(err), classify.ReasonKeyReused)
	c.rows(1, 1)
	h.then = func(*message.Message) error {
		_, err := transactions.Middleware(c.produce)(newMessage("m2"))
		testkit.Check(c, errors.Is(err, idempotency.ErrHeld) && requeued(err),
			"a transaction took a leased key: %v", err)
		return nil
	}
	c.applies(leases.Middleware(h.handle), newMessage("m2"))
	c.applies(transactions.Middleware(c.produce), newMessage("m2"))
	h.called(1)
	c.rows(1, 2)
}

// Feature I3, decision 8: a lease of a joined store is committed while the message's own transaction is open: other
// processes see it, and the key is applied when the handler has succeeded.
func TestLeaseJoined(t *testing.T) {
	for _, d := range kinds[1:] {
		t.Run(d.name, func(t *testing.T) {
			c := newCell(t, d)
			db := c.db
			pub := testkit.Must(wmsql.NewPublisher(t.Context(), db, wmsql.PublisherConfig{}))
			sub := testkit.Must(
				wmsql.NewSubscriber(t.Context(), db, wmsql.SubscriberConfig{PollInterval: 10 * time.Millisecond}))
			testkit.NoError(t, sub.SubscribeInitialize("orders"))
			joined := testkit.Must(wmsql.Join(t.Context(), sub, "shop"))
			r := newReceiver(t, joined, idempotency.ReceiverConfig{Lease: time.Minute})
			other := c.store(c.open(t, c.address))
			held := make(chan error, 10)
			handle := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
				key := idempotency.Key{Consumer: "shop/billing", ID: msg.UUID}
				_, err := other.Lease(context.Background(), idempotency.Entry{Key: key}, time.Minute)
				if _, ok := idempotency.Fence(msg.Context()); !ok || idempotency.Tx(msg.Context()) != nil {
					t.Error("not under a lease")
				}
				held <- err
				return nil, nil
			})
			stop := testkit.RunRouter(t, watermill.NopLogger{}, func(router *message.Router) {
				router.AddConsumerHandler("billing", "orders", sub, func(msg *message.Message) error {
					return testkit.Err(handle(msg))
				})
			})
			id := watermill.NewUUID()
			for range 2 {
				testkit.NoError(t, pub.Publish("orders", message.NewMessage(id, []byte(`{}`))))
			}
			testkit.Is(t, <-held, idempotency.ErrHeld)
			eventually(t, "the key is applied", func() bool {
				return count(t, db, `spillway_keys WHERE expires_at IS NULL`) == 1
			})
			stop()
			testkit.Equal(t, "calls beside the first", len(held), 0)
		})
	}
}

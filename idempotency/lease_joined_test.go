package idempotency_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// Feature I3, decision 8: a lease of a joined store is committed while the message's own transaction is open: other
// processes see it, and the key is applied when the handler has succeeded.
func TestLeaseJoined(t *testing.T) {
	for _, d := range kinds[1:] {
		t.Run(d.name, func(t *testing.T) {
			c := newCell(t, d)
			db := c.db
			pub := testkit.Must(wmsql.NewPublisher(t.Context(), db, wmsql.PublisherConfig{}))
			sub, err := wmsql.NewSubscriber(t.Context(), db, wmsql.SubscriberConfig{PollInterval: 10 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			testkit.NoError(t, sub.SubscribeInitialize("orders"))
			joined := testkit.Must(wmsql.Join(t.Context(), sub, "shop"))
			r := newReceiver(t, joined, idempotency.ReceiverConfig{Lease: time.Minute})
			router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, watermill.NopLogger{})
			if err != nil {
				t.Fatal(err)
			}
			other := c.store(c.open(t, c.address))
			held := make(chan error, 10)
			handle := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
				_, err := other.Lease(context.Background(), idempotency.Entry{Key: idempotency.Key{Consumer: "shop/billing", ID: msg.UUID}}, time.Minute)
				if _, ok := idempotency.Fence(msg.Context()); !ok || idempotency.Tx(msg.Context()) != nil {
					t.Error("not under a lease")
				}
				held <- err
				return nil, nil
			})
			router.AddConsumerHandler("billing", "orders", sub, func(msg *message.Message) error { _, err := handle(msg); return err })
			stopped := make(chan error)
			go func() { stopped <- router.Run(context.Background()) }()
			<-router.Running()
			id := watermill.NewUUID()
			for range 2 {
				testkit.NoError(t, pub.Publish("orders", message.NewMessage(id, []byte(`{}`))))
			}
			if err := <-held; !errors.Is(err, idempotency.ErrHeld) {
				t.Error(err)
			}
			eventually(t, "the key is applied", func() bool { return count(t, db, `spillway_keys WHERE expires_at IS NULL`) == 1 })
			_ = router.Close()
			if err := <-stopped; err != nil || len(held) != 0 {
				t.Fatal(err, len(held))
			}
		})
	}
}

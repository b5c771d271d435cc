package delayed_test

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/delayed"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// billing handles messages of the topic orders until the test ends.
func billing(t *testing.T, db *sql.DB, handler message.NoPublishHandlerFunc) (publish func(id string)) {
	t.Helper()
	sub := testkit.Must(wmsql.NewSubscriber(t.Context(), db, wmsql.SubscriberConfig{
		ConsumerGroup: "billing", PollInterval: 10 * time.Millisecond, NackBackoff: 10 * time.Millisecond,
	}))
	pub := testkit.Must(wmsql.NewPublisher(t.Context(), db, wmsql.PublisherConfig{}))
	testkit.NoError(t, pub.InitializeTopics("orders"))
	testkit.RunRouter(t, watermill.NopLogger{}, func(r *message.Router) {
		r.AddConsumerHandler("billing", "orders", sub, handler)
	})
	return func(id string) { testkit.NoError(t, pub.Publish("orders", message.NewMessage(id, []byte("{}")))) }
}

// waiting counts what waits in a store.
func waiting(t *testing.T, store *delayed.Store) (n int) {
	t.Helper()
	for _, w := range testkit.Must(store.Waiting(context.Background())) {
		n += w.Messages
	}
	return n
}

// What a handler puts is in the transaction that consumes its message: it is rolled back and committed with it.
func TestPut_inTransaction(t *testing.T) {
	for _, d := range databases.All[1:] {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			db := d.New(t)
			store := testkit.Must(delayed.NewStore(t.Context(), db, "shop"))
			var tries atomic.Int64
			publish := billing(t, db, func(msg *message.Message) error {
				err := store.Put(msg.Context(), "later", message.NewMessage(msg.UUID, nil), time.Hour)
				testkit.Equal(t, "what others see before the message is acked", waiting(t, store), 0)
				if tries.Add(1) < 3 {
					err = errors.Join(err, errors.New("rolled back"))
				}
				return err
			})
			publish("1")
			testkit.Eventually(t, "it is there", func() bool { return waiting(t, store) > 0 })
			testkit.Check(t, waiting(t, store) == 1 && tries.Load() == 3, "%d wait after %d tries", waiting(t, store),
				tries.Load())
		})
	}
}

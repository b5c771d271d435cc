package idempotency_test

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/idempotency"
)

// A service purges beside its handlers: a moment after they start, and then every hour.
func ExampleNewPurge() {
	db, cleanUp := accounts()
	defer cleanUp()
	store := must(idempotency.NewStore(context.Background(), db, ""))
	must(db.Exec(`INSERT INTO spillway_keys (consumer, id, applied_at) VALUES ('billing', 'payment-1', ?), ('billing', 'payment-2', ?)`,
		time.Now().Add(-40*24*time.Hour).UnixMilli(), time.Now().UnixMilli()))
	purged := make(chan int, 1)
	purge := must(idempotency.NewPurge(store, idempotency.PurgeConfig{
		Retention: 30 * 24 * time.Hour, // longer than retries take, and dead letters wait
		Every:     time.Second,
		OnRun: func(_ context.Context, keys int, _ error) {
			select {
			case purged <- keys:
			default: // one is enough here
			}
		},
	}))
	router := message.NewDefaultRouter(watermill.NopLogger{})
	router.AddPlugin(purge)
	pubsub := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	router.AddConsumerHandler("billing", "payments", pubsub, func(*message.Message) error { return nil })
	go func() { _ = router.Run(context.Background()) }()
	fmt.Println(<-purged, "key is purged")
	if err := router.Close(); err != nil {
		panic(err)
	}
	// Output: 1 key is purged
}

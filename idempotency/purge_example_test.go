package idempotency_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/watermill-spillway/spillway/idempotency"
)

// A service purges beside its handlers: router.AddPlugin(purge.Plugin). One that has a schedule of its own calls Run.
func ExamplePurge() {
	db, cleanUp := accounts()
	defer cleanUp()
	store, err := idempotency.NewStore(context.Background(), db, "")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.Exec(`INSERT INTO spillway_keys (consumer, id, applied_at) VALUES ('billing', 'payment-1', ?), ('billing', 'payment-2', ?)`,
		time.Now().Add(-40*24*time.Hour).UnixMilli(), time.Now().UnixMilli()); err != nil {
		log.Fatal(err)
	}
	purge, err := idempotency.NewPurge(store, idempotency.PurgeConfig{
		Retention: 30 * 24 * time.Hour, // longer than retries take, and dead letters wait
	})
	if err != nil {
		log.Fatal(err)
	}
	n, err := purge.Run(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n, "key is purged")
	// Output: 1 key is purged
}

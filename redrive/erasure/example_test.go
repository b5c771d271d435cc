package erasure_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver is the application's choice

	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/erasure"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/settings"
)

// A customer asks that their data be erased. A dry run says how much there is, and then it is gone.
func Example() {
	dir, err := os.MkdirTemp("", "erasure")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "letters.db")+"?_pragma=journal_mode(WAL)")
	if err != nil {
		panic(err)
	}
	defer func() { _ = db.Close() }()
	ctx := context.Background()
	store, err := letters.NewStore(ctx, db, settings.Shared{Service: "shop"})
	if err != nil {
		panic(err)
	}
	if err := store.Publish("orders.dlq", personal("order-1")); err != nil {
		panic(err)
	}
	request := erasure.Request{
		Metadata: map[string]string{"customer": "ann.smith@example.com"},
		Act:      campaigns.Act{By: "bob", Reason: "request 17"},
		DryRun:   true,
	}
	for range 2 {
		report, err := erasure.Erase(ctx, erasure.Stores{Letters: store}, request)
		if err != nil {
			panic(err)
		}
		fmt.Println(request.DryRun, report.Letters)
		request.DryRun = false
	}
	letter, err := store.Get(ctx, 1)
	if err != nil {
		panic(err)
	}
	fmt.Println(letter.Status, len(letter.Original.Payload), letter.Marked.Reason)
	// Output:
	// true 1
	// false 1
	// erased 0 request 17
}

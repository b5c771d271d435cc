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
)

// must is for examples: a program handles its errors.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// A customer asks that their data be erased. A dry run says how much there is, and then it is gone.
func Example() {
	dir := must(os.MkdirTemp("", "erasure"))
	defer func() { _ = os.RemoveAll(dir) }()
	db := must(sql.Open("sqlite", "file:"+filepath.Join(dir, "letters.db")+"?_pragma=journal_mode(WAL)"))
	defer func() { _ = db.Close() }()
	ctx := context.Background()
	store := must(letters.NewStore(ctx, db, letters.Config{Service: "shop"}))
	if err := store.Publish("orders.dlq", personal("order-1")); err != nil {
		panic(err)
	}
	request := erasure.Request{
		Metadata: map[string]string{"customer": "ann.smith@example.com"},
		Act:      campaigns.Act{By: "bob", Reason: "request 17"},
		DryRun:   true,
	}
	for range 2 {
		report := must(erasure.Erase(ctx, erasure.Stores{Letters: store}, request))
		fmt.Println(request.DryRun, report.Letters)
		request.DryRun = false
	}
	letter := must(store.Get(ctx, 1))
	fmt.Println(letter.Status, len(letter.Original.Payload), letter.Marked.Reason)
	// Output:
	// true 1
	// false 1
	// erased 0 request 17
}

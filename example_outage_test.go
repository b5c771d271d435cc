package spillway_test

import (
	"context"
	"fmt"
	"io/fs"
	"log"
	"slices"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

// A handler is stopped for a deploy, which the health endpoint shows.
func ExampleChannel_Health() {
	_, db, router, _, _, _, cleanUp := whatYouHave()
	defer cleanUp()
	dlc, err := spillway.New(context.Background(), spillway.Config{Service: "shop", DB: db, Breaker: &breaker.Config{}})
	if err != nil {
		log.Fatal(err)
	}
	dlc.Attach(router)

	if err := dlc.Breaker().Open("billing", "deploy of the ledger"); err != nil {
		log.Fatal(err)
	}
	for _, held := range dlc.Health().Handlers {
		fmt.Println(held.Handler, "is", held.State, "for the", held.Reason)
	}
	if err := dlc.Breaker().Close("billing"); err != nil {
		log.Fatal(err)
	}
	fmt.Println("all is well:", dlc.Health().OK)
	// Output:
	// billing is frozen for the deploy of the ledger
	// all is well: true
}

// A migration tool makes the tables, where programs may not: these files, in this order.
func ExampleSchema() {
	files, err := fs.Glob(spillway.Schema(), "postgres/*.sql")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(slices.IsSorted(files), files[0])
	// Output: true postgres/0001_versions.sql
}

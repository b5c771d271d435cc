package delayed

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
)

// Promise P1: what is left in a database is found without a Store, by its service, and the search makes no table.
func TestLeft(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db := d.Open(t, address)
		for range 2 { // the first search makes no table either
			if waiting, err := Left(t.Context(), db, "shop"); err != nil || len(waiting) != 0 {
				t.Fatalf("without a table: %v, %v", waiting, err)
			}
		}
		if _, err := db.Exec(`SELECT 1 FROM spillway_delayed`); err == nil {
			t.Error("the search made the table")
		}
		s := newStore(t, d, address)
		testkit.NoError(t, s.Put(t.Context(), "orders.billing.retry", message.NewMessage("1", nil), time.Hour))
		waiting, err := Left(t.Context(), db, s.Service())
		if err != nil || len(waiting) != 1 || waiting[0].Topic != "orders.billing.retry" || waiting[0].Messages != 1 {
			t.Errorf("%v, %v", waiting, err)
		}
		if waiting, err := Left(t.Context(), db, "another"); err != nil || len(waiting) != 0 {
			t.Errorf("of another service: %v, %v", waiting, err)
		}
	})
}

package erasure_test

import (
	"database/sql"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/child"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/redrive/erasure"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// order is what a process erases, until it ends itself without a word after so many steps.
type order struct {
	Driver, Address string
	Steps           int
}

func (o order) erase() error {
	ctx, stop := child.Context()
	defer stop()
	s := testkit.Must(storesOn(ctx, testkit.Must(sql.Open(o.Driver, o.Address))))
	_, err := erasure.Erase(ctx, s, erasure.Request{Metadata: whom, Act: act, Progress: func(erasure.Report) {
		if o.Steps--; o.Steps == 0 {
			child.Kill()
		}
	}})
	return err
}

// Feature D14: an erasure that is killed at any step, and run again, erases each letter once, whole or not at all.
func TestErase_killed(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db := d.Open(t, address)
		s, ctx := open(t, db), t.Context()
		const n = 450
		fill(t, db, s, n)
		// The steps: campaigns, keys of what waits, what waits, and then the keys and the letters of each batch.
		for _, steps := range []int{1, 2, 3, 4, 5} {
			child.Killed(t, order{child.Driver(d.Name), address, steps})
			erased := 0
			whole := len(fixture.List(t, s.Letters, letters.Filter{Metadata: whom, Limit: letters.MaxLimit}))
			gone := letters.Filter{Statuses: []letters.Status{letters.StatusErased}, Limit: letters.MaxLimit}
			for _, l := range fixture.List(t, s.Letters, gone) {
				erased++
				testkit.Require(t, len(l.Original.Payload)+len(l.Original.Metadata)+len(l.Failure.Description) == 0,
					"half erased: %+v", l)
			}
			testkit.Require(t, erased+whole == n,
				"after %d steps %d letters are erased and %d are not, of %d", steps, erased, whole, n)
		}
		report, err := erasure.Erase(ctx, s, erasure.Request{Metadata: whom, Act: act})
		testkit.Require(t, err == nil && report.Letters != 0, "%+v, %v", report, err)
		wantGone(t, db, person)
		wantOthers(t, db, s, n)
		var events, of int
		testkit.NoError(t, db.QueryRow(`SELECT COUNT(*), COUNT(DISTINCT message) FROM spillway_letter_events
WHERE kind = 'erased'`).Scan(&events, &of))
		testkit.Check(t, events == n && of == n, "%d letters are on record %d times", of, events)
	})
}

package erasure_test

import (
	"context"
	"database/sql"
	"errors"
	"os/exec"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/child"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
	"github.com/watermill-spillway/spillway/redrive/erasure"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

var eventually = testkit.Eventually

func contextOf() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), testkit.Patience)
}

// order is what a process erases, until it ends itself without a word after so many steps.
type order struct {
	Driver, Address string
	Steps           int
}

func (o order) erase() error {
	db, err := sql.Open(o.Driver, o.Address)
	if err != nil {
		return err
	}
	s, err := storesOn(db)
	if err != nil {
		return err
	}
	ctx, stop := contextOf()
	defer stop()
	_, err = erasure.Erase(ctx, s, erasure.Request{Metadata: whom, Act: act, Progress: func(erasure.Report) {
		if o.Steps--; o.Steps == 0 {
			child.Kill()
		}
	}})
	return err
}

// Feature D14: an erasure that is killed at any step, and run again, erases all of it: each letter once, whole or not
// at all, with what belongs to it. Counted by id.
func TestErase_killed(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db := d.Open(t, address)
		s, ctx := open(t, db), t.Context()
		const n = 650
		fill(t, db, s, n)
		// The steps: campaigns, keys of what waits, what waits, and then the keys and the letters of each batch.
		for _, steps := range []int{1, 2, 3, 4, 5, 3, 4} {
			cmd := child.Command(t, order{child.Driver(d.Name), address, steps})
			var exit *exec.ExitError
			if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != -1 {
				t.Fatalf("the process was not killed after %d steps: %v", steps, err)
			}
			erased := 0
			for _, l := range allOf(t, s, letters.StatusErased) {
				if erased++; len(l.Original.Payload)+len(l.Original.Metadata)+len(l.Failure.Description) > 0 {
					t.Fatalf("half erased: %+v", l)
				}
			}
			whole := 0
			for _, l := range allOf(t, s, letters.StatusWaiting) {
				if l.Original.Metadata.Get("customer") == person {
					whole++
				}
			}
			if erased+whole != n {
				t.Fatalf("after %d steps %d letters are erased and %d are not, of %d", steps, erased, whole, n)
			}
		}
		report, err := erasure.Erase(ctx, s, erasure.Request{Metadata: whom, Act: act})
		if err != nil || report.Letters == 0 {
			t.Fatalf("%s, %v", asJSON(t, report), err)
		}
		if left := saying(t, db, person); len(left) > 0 {
			t.Errorf("%s is still in %d places: %v", person, len(left), left[:min(len(left), 5)])
		}
		wantOthers(t, db, s, n)
		times := map[string]int{}
		for f := (letters.EventFilter{Kinds: []letters.EventKind{letters.EventErased}, Limit: letters.MaxLimit}); ; {
			events := testkit.Must(s.Letters.Audit(ctx, f))
			if len(events) == 0 {
				break
			}
			for _, e := range events {
				times[e.MessageID]++
				f.After = e.Number
			}
		}
		for id, n := range times {
			if n != 1 {
				t.Errorf("%s is on record %d times", id, n)
			}
		}
		if len(times) != n {
			t.Errorf("%d letters are on record, want %d", len(times), n)
		}
	})
}

// allOf returns the letters of a status.
func allOf(t testing.TB, s erasure.Stores, status letters.Status) (all []letters.Letter) {
	t.Helper()
	for f := (letters.Filter{Statuses: []letters.Status{status}, Limit: letters.MaxLimit}); ; {
		found := testkit.Must(s.Letters.List(t.Context(), f))
		if len(found) == 0 {
			return all
		}
		all, f.After = append(all, found...), found[len(found)-1].Seq
	}
}

package campaigns_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Features D15, I9, V7: a person lets the handlers run again whose outputs could not be published, where the receiver's
// keys can be found. The keys of other letters stay. A letter whose key cannot be removed is not published, and the
// campaign says why.
func TestHandleAgain(t *testing.T) {
	fixture.OnEach(t, func(t *testing.T, d fixture.Database) {
		db := d.Create(t)()
		store := fixture.StoreOn(t, db)
		all := open(t, store, config)
		of := func(reason string) func(*poison.Letter) {
			return func(l *poison.Letter) { l.Failure.Reason = reason }
		}
		fixture.Publish(t, store, "orders.dlq", fixture.Letter("output", "{}", of(classify.ReasonOutput)), fixture.Letter("another", "{}"))
		r := request
		r.HandleAgain = true
		_, planned := all.Plan(t.Context(), r)
		_, started := all.Start(t.Context(), r)
		for _, err := range []error{planned, started} {
			if !errors.Is(err, campaigns.ErrRequest) || !strings.Contains(err.Error(), "Request.HandleAgain") {
				t.Errorf("without keys: %v", err)
			}
		}
		keys := testkit.Must(idempotency.NewStore(t.Context(), db, "shop"))
		for _, id := range []string{"output", "another"} {
			claim, err := keys.Claim(t.Context(), idempotency.Entry{Key: idempotency.Key{Consumer: keys.Consumer("billing"), ID: id}})
			if err == nil {
				err = claim.Commit([]byte{1, 0})
			}
			testkit.NoError(t, err)
		}
		out := &fixture.Outbox{}
		stop := run(t, all, out, quick)
		c := reach(t, all, start(t, all, r).ID, campaigns.Finished)
		if c.Redriven != 2 || !c.Request.HandleAgain {
			t.Errorf("%+v", c)
		}
		var id string
		if err := db.QueryRow(`SELECT MIN(id) FROM spillway_keys HAVING COUNT(*) = 1`).Scan(&id); err != nil || id != "another" {
			t.Errorf("the key of %q is left, %v", id, err)
		}
		events, err := store.Audit(t.Context(), letters.EventFilter{Kinds: []letters.EventKind{letters.EventKeyRemoved}})
		if err != nil || len(events) != 1 || events[0].MessageID != "output" || events[0].RedriveID != c.ID {
			t.Errorf("%+v %v", events, err)
		}

		stop()
		fixture.Publish(t, store, "orders.dlq", fixture.Letter("stays", "{}", of(classify.ReasonOutput)))
		c = start(t, all, r)
		if _, err := db.Exec(`ALTER TABLE spillway_keys RENAME COLUMN expires_at TO hidden`); err != nil { // so that none can be removed
			t.Fatal(err)
		}
		run(t, all, out, quick)
		c = reach(t, all, c.ID, campaigns.Finished)
		behind, err := all.Inside().LeftBehind(t.Context(), c.ID)
		if err != nil || c.Failed != 1 || len(behind) != 1 || !strings.Contains(behind[0].Why, "run again") || out.IDs()["stays"] > 0 {
			t.Errorf("%+v, %+v, %v, published %v", c, behind, err, out.IDs())
		}
	})
}

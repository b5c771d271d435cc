package erasure_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/chain/delays"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/child"
	"github.com/watermill-spillway/spillway/middleware/stages/delay"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/erasure"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func TestMain(m *testing.M) {
	child.Main(order.erase)
	goleak.VerifyTestMain(m)
}

// person is the value that must not be found after it was erased.
const person = fixture.Person

var (
	act      = campaigns.Act{By: "bob", Reason: "request 17"}
	whom     = map[string]string{"customer": person}
	personal = fixture.Personal
)

// storesOn opens all stores that can have data of a person.
func storesOn(ctx context.Context, db *sql.DB) (s erasure.Stores, err error) {
	if s.Letters, err = letters.NewStore(ctx, db, letters.Config{Service: "shop"}); err != nil {
		return s, err
	}
	if s.Delayed, err = delay.NewStore(ctx, db, "shop"); err != nil {
		return s, err
	}
	if s.Keys, err = idempotency.NewStore(ctx, db, "shop"); err != nil {
		return s, err
	}
	if _, err = sequence.NewStore(ctx, db, "shop"); err != nil {
		return s, err
	}
	s.Campaigns, err = campaigns.New(ctx, s.Letters, campaigns.Config{Allow: []string{"orders"}})
	return s, err
}

func open(t testing.TB, db *sql.DB) erasure.Stores {
	t.Helper()
	return testkit.Must(storesOn(t.Context(), db))
}

// fill stores n letters of the person and n of others, with a key for each, and some messages that wait.
func fill(t testing.TB, db *sql.DB, s erasure.Stores, n int) {
	t.Helper()
	var batch []*message.Message
	for i := range n {
		batch = append(batch, personal(fmt.Sprint("ann-", i)), fixture.Letter(fmt.Sprint("other-", i), "{}"))
	}
	fixture.Publish(t, s.Letters, "orders.dlq", batch...)
	d, err := database.Detect(t.Context(), db)
	testkit.NoError(t, err)
	err = d.Write(t.Context(), func(tx *sql.Tx) error {
		for _, msg := range batch {
			outputs := []byte("receipt")
			if strings.HasPrefix(msg.UUID, "ann") {
				outputs = []byte("receipt for " + person)
			}
			if _, err := tx.Exec(d.Statement(`INSERT INTO spillway_keys (consumer, id, outputs, fingerprint, applied_at) VALUES (?, ?, ?, ?, 1)`),
				d.Text("shop/billing"), d.Text(msg.UUID), outputs, []byte("print")); err != nil {
				return err
			}
		}
		return nil
	})
	testkit.NoError(t, err)
	for i := range 20 {
		for _, of := range []string{person, "bob"} {
			msg := message.NewMessage(fmt.Sprint("waits-", of[:3], "-", i), []byte(`{"email":"`+of+`"}`))
			msg.Metadata.Set("customer", of)
			testkit.NoError(t, delays.In(s.Delayed.(*delay.Store)).Put(t.Context(), "orders", msg, time.Hour))
		}
	}
}

// saying returns where a value stands in all tables that can have data of a message.
func saying(t testing.TB, db *sql.DB, value string) []string {
	t.Helper()
	return fixture.Saying(t, db, value, append(fixture.Tables, "spillway_delayed", "spillway_parked", "spillway_keys", "spillway_campaigns", "spillway_campaign_letters",
		"spillway_campaign_events")...)
}

// wantGone fails the test if any table says one of the values.
func wantGone(t testing.TB, db *sql.DB, values ...string) {
	t.Helper()
	for _, value := range values {
		left := saying(t, db, value)
		testkit.Check(t, len(left) == 0, "%s is still in %d places: %v", value, len(left), left[:min(len(left), 5)])
	}
}

// wantOthers fails the test unless what is kept of others is as it was.
func wantOthers(t testing.TB, db *sql.DB, s erasure.Stores, n int) {
	t.Helper()
	others := fixture.List(t, s.Letters, letters.Filter{Limit: letters.MaxLimit})
	for _, l := range others {
		testkit.Require(t, strings.HasPrefix(l.Original.UUID, "other-") && string(l.Original.Payload) == "{}" &&
			l.Original.Metadata.Get("tenant") == "blue" && l.Failure.Description == "customer "+l.Original.UUID+" is unknown",
			"%+v", l)
	}
	var keys int
	testkit.NoError(t, db.QueryRow(`SELECT COUNT(*) FROM spillway_keys WHERE outputs IS NOT NULL AND fingerprint IS NOT NULL AND id LIKE 'other-%'`).Scan(&keys))
	waiting, err := delays.In(s.Delayed.(*delay.Store)).Waiting(t.Context())
	testkit.Check(t, len(others) == n && keys == n && err == nil && len(waiting) == 1 && waiting[0].Messages == 20,
		"of others are left: %d letters, %d keys, %+v, %v; want %d, %d and 20", len(others), keys, waiting, err, n, n)
}

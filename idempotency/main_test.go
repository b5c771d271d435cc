package idempotency_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// openWithEffects opens an empty SQLite database with a table for effects.
func openWithEffects(t *testing.T) *sql.DB {
	t.Helper()
	return newCell(t, onSQLite).db
}

// storeOn is the store in db of the service shop.
func storeOn(db *sql.DB) idempotency.Store {
	store, err := idempotency.NewStore(context.Background(), db, "shop")
	if err != nil {
		panic(err)
	}
	return store
}

func newReceiver(t testing.TB, store idempotency.Store, config idempotency.ReceiverConfig) *idempotency.Receiver {
	t.Helper()
	if config.Consumer == "" {
		config.Consumer = "billing"
	}
	return testkit.Must(idempotency.NewReceiver(store, config))
}

// effect is a handler that writes one row in the claim's transaction.
func effect(msg *message.Message) ([]*message.Message, error) {
	_, err := idempotency.Tx(msg.Context()).ExecContext(context.WithoutCancel(msg.Context()), `INSERT INTO effects VALUES ($1)`, msg.UUID)
	return nil, err
}

func count(t testing.TB, db *sql.DB, table string) (n int) {
	t.Helper()
	testkit.NoError(t, db.QueryRow(`SELECT count(*) FROM `+table).Scan(&n))
	return n
}

func wantRows(t testing.TB, db *sql.DB, effects, keys int) {
	t.Helper()
	if e, k := count(t, db, "effects"), count(t, db, "spillway_keys"); e != effects || k != keys {
		t.Fatalf("got %d effects and %d keys, want %d and %d", e, k, effects, keys)
	}
}

func class(err error) classify.Class { return (*classify.Classifier)(nil).Classify(err).Class }

func reason(err error) string { return (*classify.Classifier)(nil).Classify(err).Reason }

func newMessage(id string) *message.Message { return message.NewMessage(id, []byte("payload")) }

// recorded is what a claim found of a key that was applied before.
func recorded(c idempotency.Claim) (outputs []byte, done bool) {
	record := c.Recorded()
	if record == nil {
		return nil, false
	}
	return record.Outputs, true
}

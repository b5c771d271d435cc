package idempotency_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/database/postgres/postgrestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a database file with a table for effects.
func open(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(2000)&_pragma=synchronous(normal)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func openWithEffects(t testing.TB) *sql.DB {
	t.Helper()
	db := open(t, filepath.Join(t.TempDir(), "test.db"))
	if _, err := db.Exec(`CREATE TABLE effects (id TEXT NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	return db
}

// openPostgres opens an empty PostgreSQL database with a table for effects.
func openPostgres(t testing.TB) *sql.DB {
	t.Helper()
	db := postgrestest.Open(t, postgrestest.Schema(t))
	if _, err := db.Exec(`CREATE TABLE effects (id text NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	return db
}

// openMySQL opens an empty MySQL database with a table for effects.
func openMySQL(t testing.TB) *sql.DB {
	t.Helper()
	return openMySQLWith(t, "parseTime=true")
}

func openMySQLWith(t testing.TB, settings string) *sql.DB {
	t.Helper()
	db := mysqltest.Open(t, mysqltest.With(mysqltest.Database(t), settings))
	if _, err := db.Exec(`CREATE TABLE effects (id VARBINARY(255) NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	return db
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
	r, err := idempotency.NewReceiver(store, config)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// effect is a handler that writes one row in the claim's transaction.
func effect(msg *message.Message) ([]*message.Message, error) {
	_, err := idempotency.Tx(msg.Context()).ExecContext(context.WithoutCancel(msg.Context()), `INSERT INTO effects VALUES ($1)`, msg.UUID)
	return nil, err
}

// effectMySQL is effect with MySQL's placeholders.
func effectMySQL(msg *message.Message) ([]*message.Message, error) {
	_, err := idempotency.Tx(msg.Context()).ExecContext(context.WithoutCancel(msg.Context()), `INSERT INTO effects VALUES (?)`, msg.UUID)
	return nil, err
}

func count(t testing.TB, db *sql.DB, table string) (n int) {
	t.Helper()
	if err := db.QueryRow(`SELECT count(*) FROM ` + table).Scan(&n); err != nil {
		t.Fatal(err)
	}
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

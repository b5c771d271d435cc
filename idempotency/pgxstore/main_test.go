package pgxstore_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq" // registers "postgres"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/idempotency/pgxstore"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens an empty database whose connections are traced.
func open(t *testing.T, settings string) (*sql.DB, *trace) {
	t.Helper()
	config := testkit.Must(pgx.ParseConfig(postgrestest.Schema(t) + settings))
	tracer := new(trace)
	config.Tracer = tracer
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1) // what a claim leaves behind meets the next
	testkit.Must(db.Exec(`CREATE TABLE effects (id text NOT NULL UNIQUE)`))
	return db, tracer
}

// shop is the service whose keys they are.
var shop = "shop"

func pipelining(t *testing.T, db *sql.DB) idempotency.Store {
	return testkit.Must(pgxstore.New(t.Context(), db, shop))
}

func receiver(t *testing.T, store idempotency.Store, config idempotency.ReceiverConfig) *idempotency.Receiver {
	t.Helper()
	config.Consumer = "billing"
	return testkit.Must(idempotency.NewReceiver(store, config))
}

const effect = `INSERT INTO effects VALUES ($1)`

func write(msg *message.Message) ([]*message.Message, error) {
	_, err := idempotency.Tx(msg.Context()).ExecContext(msg.Context(), effect, msg.UUID)
	return nil, err
}

func newMessage(id string) *message.Message { return message.NewMessage(id, []byte("payload")) }

func rows(t *testing.T, db *sql.DB, table string) (n int) {
	t.Helper()
	testkit.NoError(t, db.QueryRow(`SELECT count(*) FROM `+table).Scan(&n))
	return n
}

// wants fails unless there are so many effects and keys, and no connection is in use.
func wants(t *testing.T, db *sql.DB, effects, keys int) {
	t.Helper()
	e, k := rows(t, db, "effects"), rows(t, db, "spillway_keys")
	testkit.Check(t, e == effects && k == keys && db.Stats().InUse == 0,
		"%d effects, %d keys, %d connections in use", e, k, db.Stats().InUse)
}

// Feature I1: on another driver's connections it is the store of package idempotency. A nil *sql.DB is an error in
// time.
func TestOtherDriver(t *testing.T) {
	db := testkit.Must(sql.Open("postgres", postgrestest.Schema(t)))
	defer func() { _ = db.Close() }()
	testkit.Must(db.Exec(`CREATE TABLE effects (id text NOT NULL)`))
	r := receiver(t, pipelining(t, db), idempotency.ReceiverConfig{})
	for range 3 {
		testkit.Must(r.Middleware(write)(newMessage("m")))
	}
	wants(t, db, 1, 1)
}

// Bad input: another database is an error that says what to do.
func TestOtherDatabase(t *testing.T) {
	file := testkit.Must(sql.Open("sqlite", filepath.Join(t.TempDir(), "keys.db")))
	defer func() { _ = file.Close() }()
	testkit.Says(t, testkit.Err(pgxstore.New(t.Context(), file, shop)), "not PostgreSQL: use idempotency.NewStore")
}

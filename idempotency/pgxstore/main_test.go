package pgxstore_test

import (
	"database/sql"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/idempotency/pgxstore"
	"github.com/watermill-spillway/spillway/internal/database/postgres/postgrestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens an empty database whose connections are traced.
func open(t *testing.T, settings string) (*sql.DB, *trace) {
	t.Helper()
	config, err := pgx.ParseConfig(postgrestest.Schema(t) + settings)
	if err != nil {
		t.Fatal(err)
	}
	tracer := new(trace)
	config.Tracer = tracer
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1) // what a claim leaves behind meets the next
	if _, err := db.Exec(`CREATE TABLE effects (id text NOT NULL UNIQUE)`); err != nil {
		t.Fatal(err)
	}
	return db, tracer
}

// shop is the service whose keys they are.
var shop = "shop"

func pipelining(t *testing.T, db *sql.DB) idempotency.Store {
	t.Helper()
	store, err := pgxstore.New(t.Context(), db, shop)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func receiver(t *testing.T, store idempotency.Store, config idempotency.ReceiverConfig) *idempotency.Receiver {
	t.Helper()
	config.Consumer = "billing"
	r, err := idempotency.NewReceiver(store, config)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const effect = `INSERT INTO effects VALUES ($1)`

func write(msg *message.Message) ([]*message.Message, error) {
	_, err := idempotency.Tx(msg.Context()).ExecContext(msg.Context(), effect, msg.UUID)
	return nil, err
}

func newMessage(id string) *message.Message { return message.NewMessage(id, []byte("payload")) }

func rows(t *testing.T, db *sql.DB, table string) (n int) {
	t.Helper()
	if err := db.QueryRow(`SELECT count(*) FROM ` + table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

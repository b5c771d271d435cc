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
	"github.com/watermill-spillway/spillway/internal/testkit"
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
	t.Helper()
	store := testkit.Must(pgxstore.New(t.Context(), db, shop))
	return store
}

func receiver(t *testing.T, store idempotency.Store, config idempotency.ReceiverConfig) *idempotency.Receiver {
	t.Helper()
	config.Consumer = "billing"
	r := testkit.Must(idempotency.NewReceiver(store, config))
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
	testkit.NoError(t, db.QueryRow(`SELECT count(*) FROM `+table).Scan(&n))
	return n
}

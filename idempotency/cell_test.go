package idempotency_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/idempotency/pgxstore"
	"github.com/watermill-spillway/spillway/internal/errs"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
)

// database is a column of the matrix.
type database struct {
	name   string // of the column
	says   string // what the store calls itself in errors
	driver string
	create func(testing.TB) (address string) // an empty one
	// newStore makes the store, as a service does.
	newStore func(context.Context, *sql.DB, string) (idempotency.Store, error)
}

var (
	onSQLite   = database{"sqlite", "sqlite", "sqlite", databases.SQLite.Create, idempotency.NewStore}
	onPostgres = database{"postgres", "postgres", "pgx", databases.Postgres.Create, idempotency.NewStore}
	onMariaDB  = database{"mariadb", "mysql", "mysql", databases.MariaDB.Create, idempotency.NewStore}
)

// columns are those of the matrix, and kinds the databases.
var (
	columns = []database{onSQLite, onPostgres,
		{"libpq", "postgres", "postgres", databases.Postgres.Create, idempotency.NewStore},
		{"pgxstore", "postgres", "pgx", databases.Postgres.Create, pgxstore.New}, onMariaDB}
	kinds = []database{onSQLite, onPostgres, onMariaDB}
)

// store is the one in db of the service shop.
func (d database) store(db *sql.DB) idempotency.Store {
	return testkit.Must(d.newStore(context.Background(), db, "shop"))
}

// onDatabases runs a test in each column, and onKinds on each kind of database, at the same time.
func onDatabases(t *testing.T, test func(*cell)) { onEach(t, columns, test) }
func onKinds(t *testing.T, test func(*cell))     { onEach(t, kinds, test) }

func onEach(t *testing.T, of []database, test func(*cell)) {
	t.Helper()
	for _, d := range of {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			test(newCell(t, d))
		})
	}
}

// open opens a database as a process of its own would.
func (d database) open(t testing.TB, address string) *sql.DB {
	t.Helper()
	db := testkit.Must(sql.Open(d.driver, address))
	db.SetMaxOpenConns(10) // the server has connections for so many, and other tests
	db.SetMaxIdleConns(2)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// cell is a case on a database of its own, with a table for effects.
type cell struct {
	*testing.T
	database
	address string
	db      *sql.DB
}

func newCell(t *testing.T, d database) *cell {
	t.Helper()
	c := &cell{T: t, database: d, address: d.create(t)}
	c.db = d.open(t, c.address)
	c.exec(`CREATE TABLE effects (id TEXT NOT NULL)`)
	return c
}

func (c *cell) exec(statements ...string) {
	c.Helper()
	databases.Exec(c, c.db, statements...)
}

// receiver is one on the cell's database.
func (c *cell) receiver(config idempotency.ReceiverConfig) *idempotency.Receiver {
	c.Helper()
	return c.receiverOn(c.store(c.db), config)
}

func (c *cell) receiverOn(store idempotency.Store, config idempotency.ReceiverConfig) *idempotency.Receiver {
	c.Helper()
	return newReceiver(c, store, config)
}

// inEffects is the statement that writes the effect of an id, in a form that needs neither quotes nor placeholders.
func inEffects(id string) string { return `INSERT INTO effects VALUES ('` + tag(id) + `')` }

func tag(id string) string {
	if len(id) > 64 {
		return fmt.Sprintf("%x", sha256.Sum256([]byte(id)))
	}
	return fmt.Sprintf("%x", id)
}

// write is a handler that writes one effect in the claim's transaction.
func (c *cell) write(msg *message.Message) ([]*message.Message, error) {
	return nil, c.enter(context.WithoutCancel(msg.Context()), msg.UUID)
}

// enter writes the effect of an id by a statement with an argument, which can take the key along.
func (d database) enter(ctx context.Context, id string) error {
	mark := "$1"
	if d.driver == "mysql" {
		mark = "?"
	}
	_, err := idempotency.Tx(ctx).ExecContext(ctx, `INSERT INTO effects VALUES (`+mark+`)`, tag(id))
	return err
}

// writeAnd is write, followed by a result.
func (c *cell) writeAnd(result func(*message.Message) ([]*message.Message, error)) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		if _, err := c.write(msg); err != nil {
			return nil, err
		}
		return result(msg)
	}
}

// rows fails unless there are so many effects and keys.
func (c *cell) rows(effects, keys int) {
	c.Helper()
	e, k := count(c, c.db, "effects"), count(c, c.db, "spillway_keys")
	testkit.Require(c, e == effects && k == keys, "got %d effects and %d keys, want %d and %d", e, k, effects, keys)
}

// applies fails unless h accepts each message.
func (c *cell) applies(h message.HandlerFunc, messages ...*message.Message) {
	c.Helper()
	for _, msg := range messages {
		if _, err := h(msg); err != nil {
			c.Fatalf("%.40q: %v", msg.UUID, err)
		}
		if idempotency.Tx(msg.Context()) != nil {
			c.Fatalf("%.40q still carries the transaction", msg.UUID)
		}
	}
}

// again reports whether a message that failed so is tried again. What no table knows is, too.
func again(err error) bool {
	return class(err) == classify.ClassTransient || class(err) == classify.ClassUnknown
}

// requeued reports whether the message of err is to come again and has not failed.
func requeued(err error) bool {
	failure, ok := errs.Find[*classify.Failure](err)
	return ok && failure.Verdict.Class == classify.ClassAborted
}

// explains fails unless err names the store, the key, its consumer, and what else is wanted.
func (c *cell) explains(err error, want ...string) {
	c.Helper()
	testkit.Require(c, err != nil, "no error")
	for _, text := range append(want, c.says, `key "m1" of consumer "shop/billing"`) {
		testkit.Check(c, strings.Contains(strings.ToLower(err.Error()), strings.ToLower(text)),
			"the error does not say %q: %v", text, err)
	}
}

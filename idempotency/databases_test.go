package idempotency_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature I1: the same middleware attached twice passes through; another key on the same store is an error, not a wait
// without end; a claim of another store is independent.
func TestNested(t *testing.T) {
	onDatabases(t, func(c *cell) {
		r := c.receiver(idempotency.ReceiverConfig{})
		twin := c.receiver(idempotency.ReceiverConfig{})
		c.applies(r.Middleware(twin.Middleware(r.Middleware(c.write))), newMessage("m1"))
		c.rows(1, 1)
		other := c.receiver(idempotency.ReceiverConfig{Consumer: "shipping"})
		if _, err := r.Middleware(other.Middleware(c.write))(newMessage("m2")); class(err) != classify.ClassPermanent || !strings.Contains(err.Error(), "inside a claim") {
			c.Error(err)
		}
		c.rows(1, 1)
		far := newCell(c.T, c.database)
		c.applies(r.Middleware(far.receiver(idempotency.ReceiverConfig{}).Middleware(far.write)), newMessage("m3"))
		c.rows(1, 2)
		far.rows(1, 1)
	})
}

// Decision 8: a claim keeps other writers out of its database on SQLite, and elsewhere only where it holds the pool's
// one connection.
func TestLocks(t *testing.T) {
	onDatabases(t, func(c *cell) {
		r := c.receiver(idempotency.ReceiverConfig{})
		another := c.open(c, c.create(c))
		for most, want := range map[int]bool{0: false, 1: true, 2: false} {
			c.db.SetMaxOpenConns(most)
			testkit.Must(r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
				claim := chain.ClaimOf(msg.Context())
				testkit.Check(c, claim.Locks(c.db) == (want || c.says == "sqlite") && !claim.Locks(another),
					"with %d connections: %v, %v", most, claim.Locks(c.db), claim.Locks(another))
				return nil, nil
			})(newMessage(fmt.Sprint(most))))
		}
	})
}

// wantAutocommit fails unless a pooled connection of MySQL commits what is written without a transaction.
func wantAutocommit(t *testing.T, db *sql.DB) {
	t.Helper()
	var on, open int
	err := db.QueryRow(`SELECT @@autocommit, @@in_transaction`).Scan(&on, &open)
	testkit.Require(t, err == nil && on == 1 && open == 0, "autocommit is %d, in a transaction: %d, %v", on, open, err)
}

// Promise P7: a handler that leaves rows open hangs nothing and spoils no connection. On a server it is not applied.
// One that sets savepoints and rolls back to them does as it may.
func TestHandlerSpoilsTransaction(t *testing.T) {
	onDatabases(t, func(c *cell) {
		c.db.SetMaxOpenConns(1)
		r := c.receiver(idempotency.ReceiverConfig{})
		_, err := r.Middleware(c.writeAnd(func(msg *message.Message) ([]*message.Message, error) {
			rows, err := idempotency.Tx(msg.Context()).Query(map[string]string{
				"sqlite": `SELECT name FROM sqlite_master`, "postgres": `SELECT generate_series(1, 100000)`, "mysql": `SELECT seq FROM seq_1_to_100000`,
			}[c.says])
			if err == nil && !rows.Next() {
				err = errors.Join(errors.New("no rows"), rows.Err())
			}
			return nil, err
		}))(newMessage("m1"))
		if (err == nil) != (c.says == "sqlite") || err != nil && (errors.Is(err, sql.ErrTxDone) || !strings.Contains(err.Error(), "close them")) {
			c.Error(err)
		}
		c.exec(`DELETE FROM effects`, `DELETE FROM spillway_keys`)
		c.applies(r.Middleware(c.writeAnd(func(msg *message.Message) ([]*message.Message, error) {
			tx := idempotency.Tx(msg.Context())
			_, set := tx.Exec(`SAVEPOINT mine`)
			_, wrote := tx.Exec(inEffects("taken back"))
			_, back := tx.Exec(`ROLLBACK TO mine`)
			return []*message.Message{newMessage("out")}, errors.Join(set, wrote, back)
		})), newMessage("m2"))
		c.rows(1, 1)
	})
}

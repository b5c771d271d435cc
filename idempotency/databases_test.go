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
	"github.com/watermill-spillway/spillway/internal/testkit"
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

// Promise P7: a handler that ends the transaction by other ways than those of P7-commits and P7-rolls-back is set aside
// if something stayed or if it said that it had succeeded. What it wrote in another transaction after that is rolled
// back.
func TestHandlerEndsTransaction(t *testing.T) {
	onDatabases(t, func(c *cell) {
		const more = `INSERT INTO effects VALUES ('more')`
		ends := map[string][]string{ // by what stays
			"postgres kept": {`COMMIT; BEGIN`},
			"postgres gone": {`ROLLBACK; BEGIN; ` + more, `ROLLBACK AND CHAIN`, `SELECT 1; ROLLBACK AND CHAIN`, `/* SELECT */ ROLLBACK AND CHAIN`},
			"mysql kept":    {`CREATE TABLE IF NOT EXISTS more (id INT)`, `COMMIT; ` + more, `COMMIT; START TRANSACTION; ` + more, `LOCK TABLES effects WRITE; ` + more},
			"mysql gone":    {`ROLLBACK; ` + more},
		}
		c.db.SetMaxOpenConns(1)
		r := c.receiver(idempotency.ReceiverConfig{})
		boom := classify.Transient(errors.New("boom"))
		for kept, rows := range map[string]int{"kept": 1, "gone": 0} {
			for _, end := range ends[c.says+" "+kept] {
				for _, result := range []error{nil, boom} {
					for outputs := range 2 {
						out, err := r.Middleware(c.writeAnd(func(msg *message.Message) ([]*message.Message, error) {
							for _, statement := range strings.Split(end, "; ") {
								if _, err := idempotency.Tx(msg.Context()).Exec(statement); err != nil {
									return nil, err
								}
							}
							return []*message.Message{newMessage("")}[:outputs], result
						}))(newMessage("m1"))
						name := fmt.Sprintf("%s, %v, %d outputs", end, result, outputs)
						permanent := rows > 0 || result == nil
						if out != nil || (class(err) == classify.ClassPermanent) != permanent || errors.Is(err, sql.ErrTxDone) != permanent || result != nil && !errors.Is(err, result) {
							c.Errorf("%s: judged %s: %v, %v", name, class(err), out, err)
						}
						testkit.Check(c, rows <= 0 || err == nil || !strings.Contains(err.Error(), "was rolled back"),
							"%s: %v", name, err)
						c.rows(rows, rows)
						c.applies(r.Middleware(c.write), newMessage("m2")) // the connection is as good as new
						if c.says == "mysql" {
							wantAutocommit(c.T, c.db)
						}
						c.exec(`DELETE FROM effects`, `DELETE FROM spillway_keys`)
					}
				}
				if c.says == "mysql" {
					c.exec(`DROP TABLE IF EXISTS more`)
				}
			}
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

// Features I4, I6: the outputs of each version have ids of their own, and a mark forgets those of its version alone.
func TestOutputsOfVersions(t *testing.T) {
	onDatabases(t, func(c *cell) {
		store := c.store(c.db)
		h := c.receiverOn(store, idempotency.ReceiverConfig{
			Key: idempotency.ByMetadata("key"), Version: idempotency.VersionMetadata("version"),
		}).Middleware(c.writeAnd(func(*message.Message) ([]*message.Message, error) {
			return []*message.Message{message.NewMessage("", []byte("out"))}, nil
		}))
		deliver := func(version int) []*message.Message {
			c.Helper()
			msg := message.NewMessage(fmt.Sprint("id of ", version), fmt.Append(nil, "payload of ", version))
			msg.Metadata = message.Metadata{"key": "k", "version": fmt.Sprint(version)}
			return testkit.Must(h(msg))
		}
		first, second := deliver(1), deliver(2)
		testkit.Require(c, len(first) == 1 && len(second) == 1 && first[0].UUID != second[0].UUID,
			"%v %v", first, second)
		mark := func(version int64) {
			entry := idempotency.Entry{Key: idempotency.Key{Consumer: "shop/billing", ID: "k"}, Version: version, Versioned: true}
			testkit.NoError(c, store.MarkPublished(c.Context(), entry))
		}
		mark(1)
		out := deliver(2)
		testkit.Check(c, len(out) == 1 && out[0].UUID == second[0].UUID, "after the mark of version 1: %v", out)
		mark(2)
		testkit.Equal(c, "after the mark of version 2", len(deliver(2)), 0)
	})
}

package idempotency_test

import (
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/outage"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// SQLite's disk is really full, by max_page_count. A server's cannot be filled for one test: there a trigger raises
// what the server says then, SQLSTATE 53100 or error 1114.
var diskRows = []row{
	{"P7-disk-claim", "a disk that is full at the claim gives the message back, and the handler is not called", (*cell).fullAtClaim},
	{"P7-disk-handler", "one that is full under the handler undoes everything, whether the handler minds or not", (*cell).fullInHandler},
	{"P7-disk-record", "one that is full when the outputs are recorded undoes everything", (*cell).fullAtRecord},
}

const full = `BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END`

// filling is a pool or a transaction.
type filling interface {
	Exec(query string, args ...any) (sql.Result, error)
	QueryRow(query string, args ...any) *sql.Row
}

// fill makes the disk full, on a server for what is done to a table, until empty is called.
func (c *cell) fill(q filling, when, table string) (empty func()) {
	c.Helper()
	exec := func(statement string) {
		_, err := q.Exec(statement)
		testkit.Check(c, err == nil, "%s: %v", statement, err)
	}
	switch c.says {
	case "postgres":
		exec(`CREATE OR REPLACE FUNCTION disk_full() RETURNS trigger LANGUAGE plpgsql AS $$ ` + full + ` $$`)
		exec(`CREATE TRIGGER disk_full BEFORE ` + when + ` ON ` + table + ` FOR EACH ROW EXECUTE FUNCTION disk_full()`)
		return func() { c.exec(`DROP TRIGGER disk_full ON ` + table) }
	case "mysql":
		exec(`CREATE TRIGGER disk_full BEFORE ` + when + ` ON ` + table +
			` FOR EACH ROW SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'The table is full'`)
		return func() { c.exec(`DROP TRIGGER disk_full`) }
	}
	var pages int
	testkit.Is(c, q.QueryRow(`PRAGMA page_count`).Scan(&pages), nil)
	exec(fmt.Sprintf(`PRAGMA max_page_count = %d`, pages))
	return func() { c.exec(`PRAGMA max_page_count = 1073741823`) }
}

// alone is a receiver on one connection, which is SQLite's setting's. It holds no message for long.
func (c *cell) alone() message.HandlerMiddleware {
	c.Helper()
	c.db.SetMaxOpenConns(1)
	r := c.receiver(idempotency.ReceiverConfig{})
	return func(h message.HandlerFunc) message.HandlerFunc { return heldBriefly(r.Middleware(h)) }
}

// heldBriefly gives h messages that are held for a millisecond, and not longer, while the store is away.
func heldBriefly(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		msg.SetContext(outage.WithMaxHold(msg.Context(), time.Millisecond))
		return h(msg)
	}
}

// isFull fails unless err says that the disk, or its stand-in, is full.
func (c *cell) isFull(err error) {
	c.Helper()
	if !again(err) && !givenBack(err) {
		c.Errorf("judged %s: %v", class(err), err)
	}
	if text := fmt.Sprint(err); strings.Contains(text, "idempotency: ") && !strings.Contains(text, "make room") {
		c.Errorf("the error does not say what to do: %v", err)
	}
	if text := fmt.Sprint(err); !strings.Contains(text, "full") && !strings.Contains(text, "No space left") {
		c.Errorf("the error does not say that the disk is full: %v", err)
	}
}

// Feature I1, promise P1.
func (c *cell) fullAtClaim() {
	r := c.alone()
	long := strings.Repeat("x", 200)
	empty := c.fill(c.db, "INSERT", "spillway_keys")
	called := 0
	h := r(func(*message.Message) ([]*message.Message, error) { called++; return nil, nil })
	var err error
	accepted := 0
	for ; accepted < 1000; accepted++ { // a page has room for some keys
		if _, err = h(newMessage(fmt.Sprint(long, accepted))); err != nil {
			break
		}
	}
	c.isFull(err)
	if !givenBack(err) || !strings.Contains(err.Error(), "claim key") || !strings.Contains(err.Error(), c.says+": ") {
		c.Error(err)
	}
	if c.optimistic {
		called--
	}
	testkit.Check(c, called == accepted, "%d keys were accepted, and the handler called %d times", accepted, called)
	empty()
	c.applies(h, newMessage(fmt.Sprint(long, accepted)))
	c.rows(0, accepted+1)
}

// Feature I2, promise P7. A handler that ignores the error, writes on and returns none is never half applied under its
// key. On PostgreSQL the transaction is lost. SQLite may roll back by itself, and commits what follows on its own: the
// message is set aside. MariaDB takes back the statement alone, as SQLite may: then the rest is what the handler chose
// to commit.
func (c *cell) fullInHandler() {
	r := c.alone()
	c.exec(`CREATE TABLE big (id TEXT NOT NULL)`)
	for _, minds := range []bool{true, false} {
		var empty func()
		if c.says != "sqlite" {
			empty = c.fill(c.db, "INSERT", "big")
		}
		_, err := r(c.writeAnd(func(msg *message.Message) ([]*message.Message, error) {
			tx := idempotency.Tx(msg.Context())
			if c.says == "sqlite" {
				empty = c.fill(tx, "", "")
			}
			_, err := tx.Exec(`INSERT INTO big VALUES ('` + strings.Repeat("x", 60_000) + `')`)
			if minds {
				return nil, err
			}
			c.isFull(err)
			_, _ = tx.Exec(inEffects("after"))
			return nil, nil
		}))(newMessage("m1"))
		empty()
		keys := count(c, c.db, "spillway_keys")
		switch {
		case minds:
			c.isFull(err)
			c.rows(0, 0)
		case c.says == "postgres":
			c.explains(err, "return the error of a failed statement")
			c.rows(0, 0)
		case err != nil:
			c.explains(err, "the transaction was rolled back")
			testkit.Check(c, class(err) == classify.ClassPermanent && keys == 0,
				"judged %s, and %d keys: %v", class(err), keys, err)
		default:
			c.rows(2, 1)
		}
		c.exec(`DELETE FROM effects`, `DELETE FROM spillway_keys`)
	}
	c.applies(r(c.write), newMessage("m1"))
	c.rows(1, 1)
}

// Features I2, I4, promise P7.
func (c *cell) fullAtRecord() {
	r := c.alone()
	c.applies(r(c.produce), newMessage("m0"))
	empty := c.fill(c.db, "UPDATE", "spillway_keys")
	large := c.writeAnd(func(*message.Message) ([]*message.Message, error) {
		return []*message.Message{message.NewMessage("", make([]byte, 1<<20))}, nil
	})
	out, err := r(large)(newMessage("m1"))
	testkit.Check(c, out == nil, "%v", out)
	c.isFull(err)
	c.explains(err, "record the outputs")
	c.rows(1, 1)
	empty()
	c.applies(r(large), newMessage("m1"), newMessage("m1"))
	c.rows(2, 2)
}

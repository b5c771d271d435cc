package idempotency_test

import (
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

var (
	diskRows = []row{
		{"P7-disk-record", "a disk that is full when the outputs are recorded undoes everything", (*cell).fullAtRecord},
	}
	// fileRows are of a database's file.
	fileRows = []row{
		{"P7-disk-claim", "a disk that is full at the claim gives the message back, and the handler is not called", (*cell).fullAtClaim},
		{"P7-disk-handler", "one that is full under the handler undoes everything, whether the handler minds or not", (*cell).fullInHandler},
	}
)

// fill makes the disk full until empty is called. SQLite's is really full, by max_page_count. A server's cannot be
// filled for one test: there a trigger raises what the server says then.
func (c *cell) fill(exec func(string, ...any) (sql.Result, error)) (empty func()) {
	c.Helper()
	fills := map[string][]string{
		"postgres": {`CREATE FUNCTION disk_full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$`,
			`CREATE TRIGGER disk_full BEFORE UPDATE ON spillway_keys FOR EACH ROW EXECUTE FUNCTION disk_full()`},
		"mysql": {`CREATE TRIGGER disk_full BEFORE UPDATE ON spillway_keys FOR EACH ROW SIGNAL SQLSTATE 'HY000'
SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'The table is full'`},
		"sqlite": {`PRAGMA max_page_count = 1`}, // which is the number that there are
	}
	for _, statement := range fills[c.says] {
		_, err := exec(statement)
		testkit.Check(c, err == nil, "%s: %v", statement, err)
	}
	return func() {
		c.exec(map[string]string{"postgres": `DROP TRIGGER disk_full ON spillway_keys`,
			"mysql": `DROP TRIGGER disk_full`, "sqlite": `PRAGMA max_page_count = 1073741823`}[c.says])
	}
}

// alone is a receiver on one connection, which is SQLite's setting's. It holds no message for long.
func (c *cell) alone() message.HandlerMiddleware {
	c.Helper()
	c.db.SetMaxOpenConns(1)
	r := c.receiver(idempotency.ReceiverConfig{})
	return func(h message.HandlerFunc) message.HandlerFunc { return heldBriefly(r.Middleware(h)) }
}

// heldBriefly gives h messages that are held for a millisecond, and not longer, while the store is unavailable.
func heldBriefly(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		msg.SetContext(hold.WithMaxHold(msg.Context(), time.Millisecond))
		return h(msg)
	}
}

// isFull fails unless err says that the disk, or its stand-in, is full.
func (c *cell) isFull(err error) {
	c.Helper()
	text := fmt.Sprint(err)
	testkit.Check(c, again(err) || requeued(err), "judged %s: %v", class(err), err)
	testkit.Check(c, !strings.Contains(text, "idempotency: ") || strings.Contains(text, "make room"), "no remedy: %v", err)
	testkit.Check(c, strings.Contains(text, "full") || strings.Contains(text, "No space left"), "not full: %v", err)
}

// Feature I1, promise P1.
func (c *cell) fullAtClaim() {
	r := c.alone()
	long := strings.Repeat("x", 200)
	empty := c.fill(c.db.Exec)
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
	if !requeued(err) || !strings.Contains(err.Error(), "claim key") || !strings.Contains(err.Error(), c.says+": ") {
		c.Error(err)
	}
	testkit.Check(c, called == accepted, "%d keys were accepted, and the handler called %d times", accepted, called)
	empty()
	c.applies(h, newMessage(fmt.Sprint(long, accepted)))
	c.rows(0, accepted+1)
}

// Feature I2, promise P7. A handler that ignores the error, writes on and returns none is never half applied under its
// key. SQLite may roll back by itself, and commits what follows on its own: the message is set aside. Or it takes back
// the statement alone: then the rest is what the handler chose to commit.
func (c *cell) fullInHandler() {
	r := c.alone()
	c.exec(`CREATE TABLE big (id TEXT NOT NULL)`)
	for _, minds := range []bool{true, false} {
		var empty func()
		_, err := r(c.writeAnd(func(msg *message.Message) ([]*message.Message, error) {
			tx := idempotency.Tx(msg.Context())
			empty = c.fill(tx.Exec)
			_, err := tx.Exec(`INSERT INTO big VALUES ('` + strings.Repeat("x", 60_000) + `')`)
			if minds {
				return nil, err
			}
			c.isFull(err)
			_, _ = tx.Exec(inEffects("after"))
			return nil, nil
		}))(newMessage("m1"))
		empty()
		switch {
		case minds:
			c.isFull(err)
			c.rows(0, 0)
		case err != nil:
			c.explains(err, "the transaction was rolled back")
			testkit.Check(c, class(err) == classify.ClassPermanent && count(c, c.db, "spillway_keys") == 0, "%v", err)
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
	empty := c.fill(c.db.Exec)
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

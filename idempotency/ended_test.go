package idempotency_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

var endedRows = []row{
	{"P7-commits", "a handler that commits the transaction itself is told so, and its message set aside", (*cell).handlerCommits},
	{"P7-rolls-back", "a handler that rolls it back itself and says success is told so; one that failed is tried again", (*cell).handlerRollsBack},
	{"P7-ignores", "a handler that ignores what ended its transaction is not taken for a success", (*cell).handlerIgnores},
	{"P7-key-gone", "a handler that removes its key fails, where there are outputs to record", (*cell).keyGone},
}

// ends are the ways in which a handler ends the transaction, by what it calls.
func ends(method func(*sql.Tx) error, statement string) map[string]func(*sql.Tx) error {
	return map[string]func(*sql.Tx) error{
		"method": method,
		"SQL":    func(tx *sql.Tx) error { _, err := tx.Exec(statement); return err },
	}
}

// told fails unless err is permanent and says what to do.
func (c *cell) told(name string, err error) {
	c.Helper()
	verdict := (*classify.Classifier)(nil).Classify(err)
	testkit.Check(c, verdict.Class == classify.ClassPermanent && errors.Is(err, sql.ErrTxDone),
		"%s: judged %s: %v", name, verdict.Class, err)
	if !strings.Contains(verdict.Description, "eave") || !strings.Contains(verdict.Description, "to the receiver") {
		c.Errorf("%s: described as %q", name, verdict.Description)
	}
	c.explains(err)
}

// Promises P1, P7: what it committed stays, with the key, so another attempt would be absorbed as if this one had been
// a success: that is why it is permanent. A store may keep the method from committing; then nothing stays.
func (c *cell) handlerCommits() {
	r := c.receiver(idempotency.ReceiverConfig{})
	for name, end := range ends((*sql.Tx).Commit, `COMMIT`) {
		for _, result := range []error{nil, classify.Transient(errors.New("boom"))} {
			for outputs := range 2 {
				name := fmt.Sprintf("%s, %v, %d outputs", name, result, outputs)
				refused := false
				_, err := r.Middleware(c.writeAnd(func(msg *message.Message) ([]*message.Message, error) {
					if err := end(idempotency.Tx(msg.Context())); err != nil {
						refused = true
						return nil, err
					}
					return []*message.Message{newMessage("")}[:outputs], result
				}))(newMessage("m1"))
				c.told(name, err)
				testkit.Check(c, result == nil || errors.Is(err, result) || refused,
					"%s: the handler's own error is lost: %v", name, err)
				if refused {
					c.rows(0, 0)
				} else {
					c.rows(1, 1)
				}
				c.exec(`DELETE FROM effects`, `DELETE FROM spillway_keys`)
			}
		}
	}
	c.applies(r.Middleware(c.write), newMessage("m1"))
	c.rows(1, 1)
}

// Promises P1, P7: nothing stays, and so an attempt that failed is an ordinary one.
func (c *cell) handlerRollsBack() {
	r := c.receiver(idempotency.ReceiverConfig{})
	for name, end := range ends((*sql.Tx).Rollback, `ROLLBACK`) {
		for outputs := range 2 {
			for _, result := range []error{nil, classify.Transient(errors.New("boom"))} {
				name := fmt.Sprintf("%s, %v, %d outputs", name, result, outputs)
				_, err := r.Middleware(c.writeAnd(func(msg *message.Message) ([]*message.Message, error) {
					if err := end(idempotency.Tx(msg.Context())); err != nil {
						c.Errorf("%s: %v", name, err)
					}
					return []*message.Message{newMessage("")}[:outputs], result
				}))(newMessage("m1"))
				switch {
				case result != nil && err != result:
					c.Errorf("%s: the handler's error became %v", name, err)
				case result == nil && class(err) != classify.ClassPermanent:
					c.Errorf("%s: judged %s: %v", name, class(err), err)
				case result == nil:
					c.explains(err)
				}
				c.rows(0, 0)
			}
		}
	}
	c.applies(r.Middleware(c.write), newMessage("m1"))
	c.rows(1, 1)
}

// Promise P7: a failed statement, its error ignored, and success returned. What the database makes of that differs:
// SQLite and MariaDB go on after a mere mistake, PostgreSQL commits nothing. There is either everything or nothing and
// an error.
func (c *cell) handlerIgnores() {
	r := c.receiver(idempotency.ReceiverConfig{})
	for outputs := range 2 {
		_, err := r.Middleware(c.writeAnd(func(msg *message.Message) ([]*message.Message, error) {
			testkit.Check(c, testkit.Err(idempotency.Tx(msg.Context()).Exec(`INSERT INTO nowhere VALUES (1)`)) != nil,
				"the statement did not fail")
			return []*message.Message{newMessage("")}[:outputs], nil
		}))(newMessage("m1"))
		if c.says == "postgres" {
			c.explains(err, "return the error of a failed statement")
			c.rows(0, 0)
		} else {
			testkit.Is(c, err, nil)
			c.rows(1, 1)
		}
		c.exec(`DELETE FROM effects`, `DELETE FROM spillway_keys`)
	}
	c.applies(r.Middleware(c.write), newMessage("m1"))
	c.rows(1, 1)
}

// Feature I4, promise P7: outputs that would not be recorded could not be returned again.
func (c *cell) keyGone() {
	r := c.receiver(idempotency.ReceiverConfig{})
	_, err := r.Middleware(c.writeAnd(func(msg *message.Message) ([]*message.Message, error) {
		_, err := idempotency.Tx(msg.Context()).Exec(`DELETE FROM spillway_keys`)
		return []*message.Message{newMessage("")}, err
	}))(newMessage("m1"))
	c.explains(err, "the handler removed it")
	c.rows(0, 0)
	c.applies(r.Middleware(c.write), newMessage("m1"))
	c.rows(1, 1)
}

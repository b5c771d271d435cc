package idempotency_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

var endedRows = []row{
	{"P7-ends", "a handler that ends the transaction itself is told so, and its message set aside, unless nothing stayed " +
		"and it says that it failed", (*cell).handlerEnds},
	{"P7-ignores", "a handler that ignores what ended its transaction is not taken for a success", (*cell).handlerIgnores},
	{"P7-key-gone", "a handler that removes its key fails, where there are outputs to record", (*cell).keyGone},
}

// ending is a way in which a handler ends the transaction: by a method or by statements.
type ending struct {
	name  string
	do    func(*sql.Tx) error
	stays bool // what it wrote before
}

func (c *cell) endings() []ending {
	const more = `INSERT INTO effects VALUES ('more')`
	all := []ending{{"Commit", (*sql.Tx).Commit, true}, {"Rollback", (*sql.Tx).Rollback, false}}
	inSQL := func(stays bool, texts ...string) {
		for _, text := range texts {
			all = append(all, ending{text, func(tx *sql.Tx) (err error) {
				for _, statement := range strings.Split(text, "; ") {
					if _, err = tx.Exec(statement); err != nil {
						return err
					}
				}
				return nil
			}, stays})
		}
	}
	inSQL(true, `COMMIT`)
	inSQL(false, `ROLLBACK`)
	switch c.says {
	case "postgres":
		inSQL(true, `COMMIT; BEGIN`)
		inSQL(false, `ROLLBACK; BEGIN; `+more, `ROLLBACK AND CHAIN`, `/* SELECT */ ROLLBACK AND CHAIN`)
	case "mysql":
		inSQL(true, `CREATE TABLE IF NOT EXISTS more (id INT)`, `COMMIT; START TRANSACTION; `+more,
			`LOCK TABLES effects WRITE`)
		inSQL(false, `ROLLBACK; START TRANSACTION; `+more)
	}
	return all
}

// Promises P1, P7: what it committed stays, with the key, so another attempt would be absorbed as if this one had been
// a success: that is why it is permanent. A store may keep the method from committing; then nothing stays. Of what it
// wrote in another transaction after that, nothing stays either, and the connection is as good as new.
func (c *cell) handlerEnds() {
	c.db.SetMaxOpenConns(1)
	r := c.receiver(idempotency.ReceiverConfig{})
	for _, end := range c.endings() {
		for _, result := range []error{nil, classify.Transient(errors.New("boom"))} {
			for outputs := range 2 {
				c.ends(r, end, result, outputs)
				c.applies(r.Middleware(c.write), newMessage("m2"))
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

func (c *cell) ends(r *idempotency.Receiver, end ending, result error, outputs int) {
	refused := false
	out, err := r.Middleware(c.writeAnd(func(msg *message.Message) ([]*message.Message, error) {
		if err := end.do(idempotency.Tx(msg.Context())); err != nil {
			refused = true
			return nil, err
		}
		return []*message.Message{newMessage("")}[:outputs], result
	}))(newMessage("m1"))
	name, stayed := fmt.Sprintf("%s, %v, %d outputs", end.name, result, outputs), 0
	if end.stays && !refused {
		stayed = 1
	}
	c.rows(stayed, stayed)
	if stayed == 0 && result != nil && !refused {
		testkit.Check(c, out == nil && err == result, "%s: the handler's error became %v", name, err)
		return
	}
	c.explains(err)
	verdict := (*classify.Classifier)(nil).Classify(err)
	testkit.Check(c, out == nil && verdict.Class == classify.ClassPermanent &&
		(errors.Is(err, sql.ErrTxDone) || stayed == 0 && c.says == "sqlite") &&
		strings.Contains(verdict.Description, "eave") && strings.Contains(verdict.Description, "to the receiver"),
		"%s: %+v: %v", name, verdict, err)
	testkit.Check(c, result == nil || refused || errors.Is(err, result), "%s: the handler's error is lost: %v", name, err)
	testkit.Check(c, stayed == 0 || !strings.Contains(err.Error(), "was rolled back"), "%s: %v", name, err)
	testkit.Says(c, err, "to the receiver") // the remedy
	called := false
	redriven, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		called = true
		return c.produce(msg)
	})(newMessage("m1"))
	testkit.Check(c, err == nil && called == (stayed == 0) && len(redriven) <= max(1-stayed, outputs),
		"%s: the redrive: called %v, %v, %v", name, called, redriven, err)
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

package idempotency_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

var undoneRows = []row{
	{"P7-deadlock", "of handlers that wait for each other one is undone, transient, and applied when it comes again", (*cell).deadlocked},
	{"P7-serialization", "a serialization failure undoes everything and is transient; the isolation cannot be changed", (*cell).serialization},
}

// Feature I2, promises P1, P7. SQLite has one lock and so no two that wait for each other, except who writes past Tx:
// that ends with the driver's busy time-out.
func (c *cell) deadlocked() {
	if c.says == "sqlite" {
		c.waitsForItself()
		return
	}
	c.exec(`CREATE TABLE pair (id INT PRIMARY KEY, n INT NOT NULL)`, `INSERT INTO pair VALUES (1, 0), (2, 0)`)
	var both sync.WaitGroup
	both.Add(2)
	h := func(row int, wait func()) message.HandlerFunc {
		return c.writeAnd(func(msg *message.Message) ([]*message.Message, error) {
			for i := range 2 {
				_, err := idempotency.Tx(msg.Context()).Exec(fmt.Sprintf(`UPDATE pair SET n = n + 1 WHERE id = %d`, (row+i)%2+1))
				if err != nil {
					return nil, err
				}
				wait()
				wait = func() {}
			}
			return nil, nil
		})
	}
	r := c.receiver(idempotency.ReceiverConfig{})
	errs := make([]error, 2)
	var all sync.WaitGroup
	for i := range 2 {
		all.Go(func() {
			_, errs[i] = r.Middleware(h(i, func() { both.Done(); both.Wait() }))(newMessage(fmt.Sprint("m", i)))
		})
	}
	all.Wait()
	testkit.Check(c, (errs[0] == nil) != (errs[1] == nil) && class(errors.Join(errs...)) == classify.ClassTransient,
		"want one transient error: %v", errs)
	for i, err := range errs {
		if err != nil && (!strings.Contains(err.Error(), fmt.Sprintf(`apply key "m%d" of consumer "shop/billing": %s: `, i, c.says)) || !strings.Contains(err.Error(), "in one order")) {
			c.Error(err)
		}
	}
	c.rows(1, 1)
	for i := range 2 {
		c.applies(r.Middleware(h(i, func() {})), newMessage(fmt.Sprint("m", i)))
	}
	c.rows(2, 2)
	n := count(c, c.db, "pair WHERE n = 2")
	testkit.Check(c, n == 2, "%d rows have been counted up twice, want 2", n)
}

func (c *cell) waitsForItself() {
	db := c.open(c, strings.Replace(c.address, "busy_timeout(2000)", "busy_timeout(20)", 1))
	r := c.receiverOn(c.store(db), idempotency.ReceiverConfig{})
	_, err := r.Middleware(c.writeAnd(func(*message.Message) ([]*message.Message, error) {
		_, err := db.Exec(inEffects("past Tx"))
		return nil, err
	}))(newMessage("m1"))
	testkit.Check(c, class(err) == classify.ClassTransient, "judged %s: %v", class(err), err)
	testkit.Says(c, err, "write through idempotency.Tx")
	c.rows(0, 0)
	c.applies(r.Middleware(c.write), newMessage("m1"))
	c.rows(1, 1)
}

// Feature I2, promises P1, P7. At READ COMMITTED no database makes one by itself; a function or trigger may raise one.
func (c *cell) serialization() {
	if c.says == "sqlite" { // there the claim writes first, and keeps all others from writing
		return
	}
	raise := map[string]string{
		"postgres": `DO $$ BEGIN RAISE EXCEPTION 'could not serialize access' USING ERRCODE = '40001'; END $$`,
		"mysql":    `BEGIN NOT ATOMIC SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Deadlock found'; END`,
	}[c.says]
	r := c.receiver(idempotency.ReceiverConfig{})
	for _, statement := range []string{raise, `SET TRANSACTION ISOLATION LEVEL SERIALIZABLE`} {
		_, err := r.Middleware(c.writeAnd(func(msg *message.Message) ([]*message.Message, error) {
			_, err := idempotency.Tx(msg.Context()).Exec(statement)
			return nil, err
		}))(newMessage("m1"))
		testkit.Check(c, err != nil && (statement != raise || class(err) == classify.ClassTransient),
			"%s: judged %s: %v", statement, class(err), err)
		if statement == raise {
			c.explains(err, "apply", "the database undid the transaction")
		}
		c.rows(0, 0)
	}
	c.applies(r.Middleware(c.write), newMessage("m1"))
	c.rows(1, 1)
}

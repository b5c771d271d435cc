package idempotency_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
)

// refusal is a reason for which a database takes no keys.
type refusal struct {
	name         string
	begin, end   func()
	remedy       string
	as           *sql.DB // whose keys are refused
	notAtTheHead bool    // a message that is new meets it at its end, or not at all
}

// refusals has those that a test can make. A server that only reads, or logs statements, cannot be had for one test: a
// trigger says there what the server says.
func (c *cell) refusals() (all []refusal) {
	exec := func(statements ...string) func() { return func() { c.exec(statements...) } }
	switch c.says {
	case "sqlite":
		one := c.open(c, c.address)
		one.SetMaxOpenConns(1)
		pragma := func(v int) func() {
			return func() { testkit.Must(one.Exec(fmt.Sprintf(`PRAGMA query_only = %d`, v))) }
		}
		return []refusal{{name: "only reads", begin: pragma(1), end: pragma(0), remedy: "let the process write", as: one}}
	case "postgres":
		role := "spillway_test_" + strings.ToLower(rand.Text()[:12])
		c.exec(`CREATE ROLE `+role,
			fmt.Sprintf(`DO $$ BEGIN EXECUTE format('GRANT USAGE ON SCHEMA %%I TO %s', current_schema()); END $$`, role),
			`GRANT ALL ON spillway_keys, effects, spillway_schema TO `+role)
		c.Cleanup(exec(`DROP OWNED BY `+role, `DROP ROLE `+role))
		one := c.open(c, mysqltest.With(c.address, "role="+role))
		for _, right := range []string{"INSERT", "UPDATE", "SELECT"} {
			all = append(all, refusal{right, exec(`REVOKE ` + right + ` ON spillway_keys FROM ` + role),
				exec(`GRANT ` + right + ` ON spillway_keys TO ` + role), "give the database's user the rights", one, false})
		}
		all[1].notAtTheHead, all[2].notAtTheHead = true, true
		return all
	}
	user := "t" + strings.ToLower(rand.Text()[:12])
	config := testkit.Must(mysqldriver.ParseDSN(c.address))
	on := config.DBName + ".* TO " + user
	c.exec(`CREATE USER `+user+` IDENTIFIED BY 'x'`, `GRANT SELECT, INSERT, UPDATE, DELETE ON `+on)
	c.Cleanup(exec(`DROP USER ` + user))
	config.User, config.Passwd = user, "x"
	from := strings.Replace(on, " TO ", " FROM ", 1)
	theirs := c.open(c, config.FormatDSN())
	theirs.SetMaxIdleConns(0) // a session keeps the rights that it began with
	all = []refusal{{"INSERT", exec(`REVOKE INSERT ON ` + from), exec(`GRANT INSERT ON ` + on),
		"give the database's user the rights", theirs, false}}
	for number, remedy := range map[int]string{1665: "binlog_format=ROW", 1036: "only reads"} {
		all = append(all, refusal{fmt.Sprint(number), exec(fmt.Sprintf(`CREATE TRIGGER refuses BEFORE INSERT ON spillway_keys FOR EACH ROW
SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = %d, MESSAGE_TEXT = 'refused'`, number)), exec(`DROP TRIGGER refuses`), remedy, c.db, false})
	}
	return all
}

// Promise P1, decision 30: an answer to a claim is about the store and not about the message. It is given back, its
// handler is not called, and the error has the remedy. What can be known at the start is an error there.
func TestKeysRefused(t *testing.T) {
	onKinds(t, func(c *cell) {
		c.store(c.db)
		for i, f := range c.refusals() {
			called := 0
			h := func(msg *message.Message) ([]*message.Message, error) { called++; return c.write(msg) }
			store := c.store(f.as)
			r := heldBriefly(c.receiverOn(store, idempotency.ReceiverConfig{}).Middleware(h))
			f.begin()
			_, atStart := c.newStore(context.Background(), f.as, "shop")
			testkit.Check(c, c.says == "sqlite" && atStart == nil || atStart != nil && strings.Contains(atStart.Error(), f.remedy), "%s: the start says %v", f.name, atStart)
			if !f.notAtTheHead {
				for range 3 {
					_, err := r(newMessage("m1"))
					testkit.Check(c, requeued(err) && strings.Contains(err.Error(), f.remedy), "%s: %v", f.name, err)
				}
				testkit.Equal(c, f.name+": calls", called, 0)
			}
			f.end()
			c.applies(r, newMessage("m1"))
			c.rows(1, 1)
			testkit.Equal(c, fmt.Sprint(i, f.name), called, 1)
			c.exec(`DELETE FROM effects`, `DELETE FROM spillway_keys`)
		}
	})
}

// Feature I2: a handler that uses Tx where there is none is told why.
func TestTxIsNil(t *testing.T) {
	for name, call := range map[string]func(*sql.Tx) error{
		"Exec":     func(tx *sql.Tx) error { return testkit.Err(tx.Exec(`SELECT 1`)) },
		"QueryRow": func(tx *sql.Tx) error { return tx.QueryRow(`SELECT 1`).Err() },
		"Commit":   (*sql.Tx).Commit, "Stmt": func(tx *sql.Tx) error { return testkit.Err(tx.Prepare(`SELECT 1`)) },
	} {
		_, err := middleware.Recover(func(msg *message.Message) ([]*message.Message, error) {
			return nil, call(idempotency.Tx(msg.Context()))
		})(newMessage("m1"))
		verdict := (*classify.Classifier)(nil).Classify(err)
		testkit.Check(t, verdict.Reason == classify.ReasonPanic && strings.Contains(verdict.Description, "set Config.DB"),
			"%s: %+v", name, verdict)
	}
	_, err := middleware.Recover(func(*message.Message) ([]*message.Message, error) {
		var none *message.Message
		return nil, fmt.Errorf("%s", none.UUID)
	})(newMessage("m1"))
	testkit.Equal(t, "another panic", (*classify.Classifier)(nil).Classify(err).Description, "")
}

package idempotency_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/wire"
)

// faulty is a cell whose store has one connection, over a wire that does what a test says.
type faulty struct {
	*cell
	own   *sql.DB
	store idempotency.Store
	wire  *wire.Wire
}

func onFaulty(t *testing.T, d database) *faulty {
	t.Helper()
	f := &faulty{cell: newCell(t, d)}
	f.own, f.wire = wire.Open(t, d.driver, f.address)
	f.own.SetMaxOpenConns(1) // what a fault leaves behind meets the next claim
	f.store = d.store(f.own)
	return f
}

// at is a fault of statements in which there is a text, at their begin on MySQL.
func (f *faulty) at(text string, fault func(*wire.Conn) error) func(*wire.Conn, string) error {
	return func(c *wire.Conn, statement string) error {
		if strings.HasPrefix(statement, text) || f.says == "postgres" && strings.Contains(statement, text) {
			return fault(c)
		}
		return nil
	}
}

func (f *faulty) claim(id string) idempotency.Claim {
	f.Helper()
	return testkit.Must(f.store.Claim(f.Context(), idempotency.Entry{Key: idempotency.Key{Consumer: "c", ID: id}}))
}

func (f *faulty) do(c idempotency.Claim, statement string) {
	f.Helper()
	testkit.Is(f, testkit.Err(c.Tx().Exec(statement)), nil)
}

// Promise P7: a driver that panics leaves no key locked, wherever it does.
func TestDriverPanics(t *testing.T) {
	boom := func(*wire.Conn) error { panic("boom") }
	for _, d := range []database{onPostgres, onMariaDB} {
		before := map[string][]string{"postgres": {"BEGIN", "UPDATE spillway_keys", "COMMIT"},
			"mysql": {"BEGIN", "INSERT", "SAVEPOINT", "RELEASE", "UPDATE spillway_keys", "COMMIT"}}[d.says]
		after := map[string]string{"postgres": "UPDATE spillway_keys", "mysql": "INSERT"}[d.says]
		for i, text := range append(before, after) {
			t.Run(fmt.Sprint(d.name, " ", i, " ", text), func(t *testing.T) {
				t.Parallel()
				f := onFaulty(t, d)
				if i < len(before) {
					f.wire.Set(f.at(text, boom), nil)
				} else {
					f.wire.Set(nil, f.at(text, boom))
				}
				func() {
					defer func() {
						testkit.Check(t, recover() == "boom", "the panic was swallowed")
					}()
					c, err := f.store.Claim(t.Context(), idempotency.Entry{Key: same})
					testkit.Is(t, err, nil)
					defer func() {
						testkit.Is(t, c.Release(), nil)
					}()
					_ = c.Commit([]byte("x"))
				}()
				f.wire.Set(nil, nil)
				stores := []idempotency.Store{d.store(f.db), f.store}
				if text == "BEGIN" || text == "COMMIT" { // whose connection database/sql gives nobody any more
					stores = stores[:1]
				}
				for _, store := range stores {
					ctx, cancel := context.WithTimeout(t.Context(), deadline)
					defer cancel()
					c, err := store.Claim(ctx, idempotency.Entry{Key: same})
					testkit.Require(t, err == nil, "the key is locked: %v", err)
					if _, done := recorded(c); done {
						t.Error("the key was applied")
					}
					testkit.NoError(t, c.Release())
				}
			})
		}
	}
}

// Feature I2: beside those of a transaction of the handler's own a claim costs two round trips on PostgreSQL, the key and
// a look at the transaction before its commit, and three on MariaDB, a savepoint between them. Outputs cost another.
func TestTrips(t *testing.T) {
	for _, row := range []struct {
		on   database
		want [3]int
	}{
		{onPostgres, [3]int{5, 6, 5}}, {onMariaDB, [3]int{6, 7, 6}},
	} {
		f, said := onFaulty(t, row.on), 0
		f.wire.Set(func(*wire.Conn, string) error { said++; return nil }, nil)
		for i, outputs := range []string{"", "out", ""} {
			said = 0
			c := f.claim(fmt.Sprint(i))
			f.do(c, inEffects("e"))
			err := c.Commit([]byte(outputs))
			testkit.Check(t, err == nil && said == row.want[i], "%q on %s: %d statements, %v", outputs, row.on.name, said, err)
		}
	}
}

// Feature I2: a commit that the server refuses, as a Galera cluster does, is an error with its cause, and nothing
// stays.
func TestCommitRefused(t *testing.T) {
	for refused, d := range map[error]database{
		&mysqldriver.MySQLError{Number: 1213, Message: "Deadlock found when trying to get lock"}: onMariaDB,
		&pgconn.PgError{Code: "23505"}: onPostgres,
	} {
		f := onFaulty(t, d)
		f.wire.Set(f.at("COMMIT", func(*wire.Conn) error { return refused }), nil)
		_, err := f.receiverOn(f.store, idempotency.ReceiverConfig{}).Middleware(f.write)(newMessage("m1"))
		testkit.Require(t, errors.Is(err, refused) && !strings.Contains(err.Error(), "perhaps"), "%v", err)
		f.rows(0, 0)
	}
}

// Promise P7: after an error with which the server has rolled everything back, whatever its number is, the commit is
// refused, and a claim that is made again applies. What the handler wrote in spite of the error stays, as SQLite has it.
// After any other error the handler may go on.
func TestMySQLErrorInDoubt(t *testing.T) {
	for _, rolledBack := range []bool{true, false} {
		t.Run(fmt.Sprint("rolled back ", rolledBack), func(t *testing.T) {
			cause := &mysqldriver.MySQLError{Number: mysql.LockTimeout, Message: "Lock wait timeout exceeded"} // innodb_rollback_on_timeout decides
			f := onFaulty(t, onMariaDB)
			c := f.claim("same")
			insert := func() { f.do(c, `INSERT INTO effects VALUES ('e')`) }
			insert()
			f.wire.Set(f.at("UPDATE", func(conn *wire.Conn) (err error) {
				if rolledBack {
					_, err = conn.Conn.(driver.ExecerContext).ExecContext(t.Context(), `ROLLBACK`, nil)
				}
				return errors.Join(err, cause)
			}), nil)
			_, err := c.Tx().Exec(`UPDATE effects SET id = 'x'`)
			testkit.Require(t, errors.Is(err, cause), "%v", err)
			f.wire.Set(nil, nil)
			insert()
			if err := c.Commit(nil); errors.Is(err, sql.ErrTxDone) != rolledBack || (err != nil) != rolledBack {
				t.Error("the commit: ", err)
			}
			if rolledBack {
				f.rows(1, 0)
			} else {
				f.rows(2, 1)
			}
			wantAutocommit(t, f.own)
		})
	}
}

package idempotency_test

import (
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

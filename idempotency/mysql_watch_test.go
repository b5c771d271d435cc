package idempotency_test

import (
	"database/sql"
	"errors"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/database/mysql"
)

// Feature I2: on a server without compound statements, as MySQL is, a claim begins in more round trips and is the same.
func TestMySQLWithoutCompounds(t *testing.T) {
	asked := 0
	f := &faultyMySQL{before: on("BEGIN", func() error {
		asked++
		return &driver.MySQLError{Number: 1064, Message: "You have an error in your SQL syntax"}
	})}
	db, observer := openFaultyMySQL(t, f)
	store := storeOn(db)
	for _, want := range []bool{true, false} {
		if first, err := claimOnce(store, same); err != nil || first != want {
			t.Fatal(first, err)
		}
	}
	c, err := store.Claim(t.Context(), idempotency.Entry{Key: idempotency.Key{Consumer: "c", ID: "another"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Tx().Exec(`INSERT INTO effects VALUES ('e')`); err != nil {
		t.Error(err)
	}
	if err := c.Release(); err != nil {
		t.Error(err)
	}
	wantRows(t, observer, 0, 1)
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

// Promise P7: an error after which the server has rolled everything back, whatever its number is, is found out before the
// next statement could commit on its own. After any other the handler may go on.
func TestMySQLErrorInDoubt(t *testing.T) {
	for name, rolledBack := range map[string]bool{"rolled back": true, "not rolled back": false} {
		t.Run(name, func(t *testing.T) {
			cause := &driver.MySQLError{Number: mysql.LockTimeout, Message: "Lock wait timeout exceeded"} // innodb_rollback_on_timeout decides
			f := &faultyMySQL{}
			db, observer := openFaultyMySQL(t, f)
			c, err := storeOn(db).Claim(t.Context(), idempotency.Entry{Key: same})
			if err != nil {
				t.Fatal(err)
			}
			insert := func() error { _, err := c.Tx().Exec(`INSERT INTO effects VALUES ('e')`); return err }
			if err := insert(); err != nil {
				t.Fatal(err)
			}
			f.instead = on("UPDATE", func() error { return cause })
			if rolledBack {
				f.instead = on("UPDATE", func() error { return errors.Join(f.last.exec(`ROLLBACK`), cause) })
			}
			if _, err := c.Tx().Exec(`UPDATE effects SET id = 'x'`); !errors.Is(err, cause) {
				t.Fatal(err)
			}
			f.instead = nil
			if err := insert(); (err != nil) != rolledBack || rolledBack && !errors.Is(err, cause) {
				t.Error("the next statement: ", err)
			}
			if err := c.Commit(nil); errors.Is(err, sql.ErrTxDone) != rolledBack || (err != nil) != rolledBack {
				t.Error("the commit: ", err)
			}
			if rolledBack {
				wantRows(t, observer, 0, 0)
			} else {
				wantRows(t, observer, 2, 1)
			}
			wantAutocommit(t, db)
		})
	}
}

// Feature I2: what runs between claim and commit is no more than what the handler does, as long as that cannot end the
// transaction.
func TestMySQLTrips(t *testing.T) {
	f := &faultyMySQL{}
	db, _ := openFaultyMySQL(t, f)
	store := storeOn(db)
	trips := func(id string, statements ...string) (said []string) {
		f.said = nil
		c, err := store.Claim(t.Context(), idempotency.Entry{Key: idempotency.Key{Consumer: "c", ID: id}})
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range statements {
			if _, err := c.Tx().Exec(statement); err != nil {
				t.Error(err)
			}
		}
		if err := c.Commit(nil); err != nil {
			t.Error(err)
		}
		return f.said
	}
	if got := trips("1", `INSERT INTO effects VALUES ('e')`, `UPDATE effects SET id = 'f'`); len(got) != 4 {
		t.Errorf("%q", got)
	}
	if got := trips("2", `SET @any = 1`, `SET @any = 2`); len(got) != 8 {
		t.Errorf("%q", got)
	}
}

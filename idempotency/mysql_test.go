package idempotency_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	_ "modernc.org/sqlite" // registers "sqlite"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// waitingMySQL is how many claims of this database have waited for their keys for a while.
func waitingMySQL(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	testkit.NoError(t, db.QueryRow(`SELECT COUNT(*) FROM information_schema.PROCESSLIST
WHERE DB = DATABASE() AND INFO LIKE 'INSERT INTO spillway_keys%' AND TIME_MS > 30`).Scan(&n))
	return n
}

// Feature I2: handlers of different keys run at the same time, neighbours in the index too and whatever the sessions'
// isolation is. A duplicate waits for longer than the server lets it, and then finds the key.
func TestMySQLIsolation(t *testing.T) {
	for _, isolation := range []string{"REPEATABLE-READ", "SERIALIZABLE"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			dsn := mysqltest.Database(t)
			db := mysqltest.Open(t, mysqltest.With(dsn, "innodb_lock_wait_timeout=1&tx_isolation=%27"+isolation+"%27"))
			store := storeOn(db)
			first := testkit.Must(
				store.Claim(t.Context(), idempotency.Entry{Key: idempotency.Key{Consumer: "c", ID: "2"}}))
			defer func() { _ = first.Release() }()
			sees := func(want int) {
				t.Helper()
				var n int
				err := first.Tx().QueryRow(`SELECT COUNT(*) FROM spillway_keys`).Scan(&n)
				testkit.Check(t, err == nil && n == want, "sees %d keys, want %d: %v", n, want, err)
			}
			sees(1)
			for _, id := range []string{"1", "3", "20"} { // do not wait
				neighbour := testkit.Must(
					store.Claim(t.Context(), idempotency.Entry{Key: idempotency.Key{Consumer: "c", ID: id}}))
				testkit.NoError(t, neighbour.Commit(nil))
			}
			sees(4) // what others committed meanwhile
			found := inBackground(func() bool {
				c, err := store.Claim(context.Background(), idempotency.Entry{Key: idempotency.Key{Consumer: "c", ID: "2"}})
				if err != nil {
					t.Error(err)
					return false
				}
				outputs, done := recorded(c)
				return done && string(outputs) == "x" && c.Release() == nil
			})
			time.Sleep(1500 * time.Millisecond) // the server has ended the wait once
			eventually(t, "the duplicate waits again", func() bool { return waitingMySQL(t, db) == 1 })
			testkit.NoError(t, first.Commit([]byte("x")))
			testkit.Check(t, <-found, "the duplicate did not find the key")
		})
	}
}

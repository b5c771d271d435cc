package idempotency_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "modernc.org/sqlite" // registers "sqlite"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/testkit"
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
			dsn := mysqltest.Database(t)
			db := mysqltest.Open(t, mysqltest.With(dsn, "innodb_lock_wait_timeout=1&tx_isolation=%27"+isolation+"%27"))
			store := storeOn(db)
			first := testkit.Must(
				store.Claim(t.Context(), idempotency.Entry{Key: idempotency.Key{Consumer: "c", ID: "2"}}))
			defer func() { _ = first.Release() }()
			var effective string
			if err := first.Tx().QueryRow(`SELECT trx_isolation_level FROM information_schema.INNODB_TRX
WHERE trx_mysql_thread_id = CONNECTION_ID()`).Scan(&effective); err != nil || effective != "READ COMMITTED" {
				t.Errorf("the isolation is %s, %v", effective, err)
			}
			for _, id := range []string{"1", "3", "20"} { // do not wait
				neighbour := testkit.Must(
					store.Claim(t.Context(), idempotency.Entry{Key: idempotency.Key{Consumer: "c", ID: id}}))
				testkit.NoError(t, neighbour.Commit(nil))
			}
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

// A handler on SQLite that writes beside the transaction of its message waits for itself. Its error names the remedy.
func TestHandlerWaitsForItself(t *testing.T) {
	db := testkit.Must(sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "shop.db")+"?_pragma=journal_mode(wal)"))
	defer func() { _ = db.Close() }()
	testkit.Must(db.Exec(`CREATE TABLE orders (id TEXT)`))
	receiver := testkit.Must(idempotency.NewReceiver(testkit.Must(idempotency.NewStore(t.Context(), db, "")), idempotency.ReceiverConfig{Consumer: "shop"}))
	write := func(writes func(context.Context, string, ...any) (sql.Result, error), ctx context.Context) error {
		_, err := writes(ctx, `INSERT INTO orders VALUES ('1')`)
		return err
	}
	beside := receiver.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		return nil, write(db.ExecContext, msg.Context())
	})
	_, err := beside(message.NewMessage("1", nil))
	testkit.Says(t, err, "write through idempotency.Tx")
	within := receiver.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		return nil, write(idempotency.Tx(msg.Context()).ExecContext, msg.Context())
	})
	_, err = within(message.NewMessage("1", nil))
	testkit.NoError(t, err)
}

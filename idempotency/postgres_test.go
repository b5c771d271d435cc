package idempotency_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

const deadline = testkit.Patience

var eventually = testkit.Eventually

// process is the server's process of a transaction.
func process(t *testing.T, tx *sql.Tx) (id int) {
	t.Helper()
	testkit.NoError(t, tx.QueryRow(`SELECT pg_backend_pid()`).Scan(&id))
	return id
}

// waiting is how many statements wait for the transaction of a process.
func waiting(t *testing.T, db *sql.DB, id int) (n int) {
	t.Helper()
	err := db.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))`, id).Scan(&n)
	testkit.Require(t, err == nil, "%v", err)
	return n
}

// Promises P3, P4: the wait for another's key ends with the context, in the server too, and leaves nothing behind.
func TestPostgresWaitEndsWithContext(t *testing.T) {
	db := newCell(t, onPostgres).db
	store := storeOn(db)
	key := idempotency.Key{Consumer: "c", ID: "1"}
	holder := testkit.Must(store.Claim(t.Context(), idempotency.Entry{Key: key}))
	id := process(t, holder.Tx())
	for want, ending := range map[error]func() (context.Context, func()){
		context.Canceled:         func() (context.Context, func()) { return context.WithCancel(context.Background()) },
		context.DeadlineExceeded: func() (context.Context, func()) { return testkit.Expiring(context.Background()) },
	} {
		ctx, end := ending()
		failed := make(chan error)
		go func() {
			_, err := store.Claim(ctx, idempotency.Entry{Key: key})
			failed <- err
		}()
		eventually(t, "the duplicate waits", func() bool { return waiting(t, db, id) == 1 })
		end()
		testkit.Is(t, <-failed, want)
		eventually(t, "the server's wait ends", func() bool { return waiting(t, db, id) == 0 })
	}
	testkit.Equal(t, "connections are in use", db.Stats().InUse, 1)
	testkit.NoError(t, holder.Commit(nil))
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	testkit.Is(t, testkit.Err(store.Claim(ended, idempotency.Entry{Key: key})), context.Canceled)
}

// Feature I2: a commit that the database refuses is an error with its cause, and nothing stays.
func TestPostgresCommitRefused(t *testing.T) {
	db := newCell(t, onPostgres).db
	if _, err := db.Exec(`ALTER TABLE effects ADD UNIQUE (id) DEFERRABLE INITIALLY DEFERRED; INSERT INTO effects VALUES ('m1')`); err != nil {
		t.Fatal(err)
	}
	h := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{}).Middleware(effect)
	_, err := h(newMessage("m1"))
	var state interface{ SQLState() string }
	if !errors.As(err, &state) || state.SQLState() != "23505" || strings.Contains(err.Error(), "perhaps") {
		t.Fatal(err)
	}
	wantRows(t, db, 1, 0)
}

package idempotency_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature I1, promise P4: a process starts while a handler of another one holds SQLite's write lock, however long the
// busy time-out of the file is.
func TestNewStoreWhileAnotherWrites(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.db")
	open := func() *sql.DB {
		db := testkit.Must(sql.Open("sqlite", "file:"+file+
			"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(3600000)"))
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	first := open()
	_, err := idempotency.NewStore(t.Context(), first, "")
	testkit.NoError(t, err)
	handler := testkit.Must(first.Conn(t.Context()))
	defer handler.Close()
	testkit.NoError(t, testkit.Err(handler.ExecContext(t.Context(), `BEGIN IMMEDIATE`)))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	second := open()
	_, err = idempotency.NewStore(ctx, second, "")
	testkit.NoError(t, err)
	var patience int
	testkit.NoError(t, second.QueryRowContext(t.Context(), `PRAGMA busy_timeout`).Scan(&patience))
	testkit.Equal(t, "the busy time-out afterwards", patience, 3_600_000)
}

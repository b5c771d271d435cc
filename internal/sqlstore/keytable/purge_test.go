package keytable_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/sqlite"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature I8: while a purge waits for another process it keeps no writer of its own process waiting.
func TestPurgeSQLiteWaitsWithoutTheGate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	var dbs [2]*sql.DB
	for i := range dbs {
		dbs[i] = testkit.Must(sql.Open("sqlite", path))
		defer func() { _ = dbs[i].Close() }()
	}
	testkit.NoError(t, database.Of(database.SQLite, dbs[0]).Upgrade(t.Context(), keytable.Table))
	other := testkit.Must(dbs[1].Begin())
	testkit.Must(other.Exec(`INSERT INTO spillway_keys (consumer, id, applied_at) VALUES ('c', '1', 1)`))
	purged := make(chan struct{})
	go func() {
		defer close(purged)
		testkit.Returns(t, 1)(keytable.Purge(t.Context(), database.Of(database.SQLite, dbs[0]), 2, 10))
	}()
	gate := sqlite.GateOf(dbs[0])
	time.Sleep(50 * time.Millisecond)
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		testkit.NoError(t, gate.Lock(ctx))
		gate.Unlock()
		cancel()
	}
	select {
	case <-purged:
		t.Error("it did not wait")
	default:
	}
	testkit.NoError(t, other.Commit())
	<-purged
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	testkit.Says(t, testkit.Err(keytable.Purge(ctx, database.Of(database.SQLite, dbs[0]), 2, 10)),
		"sqlite: purge keys: ")
}

package keytable_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/internal/database"
	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/database/sqlite"
	"github.com/watermill-spillway/spillway/internal/keytable"
	"github.com/watermill-spillway/spillway/internal/testkit"
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

// Feature I8: the settings of MySQL's connections do not matter, neither to the table nor to the purge.
func TestPurgeMySQLSettings(t *testing.T) {
	for _, settings := range []string{
		"parseTime=true&interpolateParams=true&clientFoundRows=true&columnsWithAlias=true", "multiStatements=true&charset=latin1",
		"sql_mode=%27ANSI%27&interpolateParams=true", "sql_mode=%27NO_BACKSLASH_ESCAPES%27&interpolateParams=true",
		"tx_isolation=%27SERIALIZABLE%27&time_zone=%27%2B05%3A00%27",
	} {
		db := mysqltest.Open(t, mysqltest.With(mysqltest.Database(t), settings))
		testkit.NoError(t, database.Of(database.MySQL, db).Upgrade(t.Context(), keytable.Table))
		soon, ago := time.Now().Add(time.Minute).UnixMilli(), time.Now().Add(-time.Minute).UnixMilli()
		if _, err := db.Exec(`INSERT INTO spillway_keys (consumer, id, applied_at, expires_at) VALUES (?, ?, 1, NULL), ('c', 'over', 2, ?), ('c', 'live', 3, ?)`,
			[]byte("ü\xff'\\"), []byte("\x00'\"\\ "), ago, soon); err != nil {
			t.Fatalf("%s: %v", settings, err)
		}
		testkit.Returns(t, 2)(keytable.Purge(t.Context(), database.Of(database.MySQL, db), time.Now().UnixMilli(), 9))
	}
}

package database_test

import (
	"context"
	"database/sql"
	"embed"
	"io/fs"
	"testing"

	"github.com/watermill-spillway/spillway/internal/database"
	"github.com/watermill-spillway/spillway/internal/database/schema"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

//go:embed testdata/toy
var toyFiles embed.FS

// counters is a whole store: its table, its SQL in testdata/toy, and its statements. It knows no kind of database.
type counters struct{ db *database.Database }

func counterTable(files fs.FS) schema.Table {
	return schema.Table{Component: "counters", Name: "toy_counters", Key: []string{"name"}, Files: files, Versions: []schema.Version{
		{File: "0001_counters.sql", Columns: []string{"name", "n"}},
		{File: "0002_times.sql", Columns: []string{"changed_at"}},
	}}
}

func newCounters(ctx context.Context, db *sql.DB, table schema.Table) (*counters, error) {
	on, err := database.Detect(ctx, db)
	if err == nil {
		err = on.Upgrade(ctx, table)
	}
	return &counters{on}, err
}

func (c *counters) add(ctx context.Context, name string, n int) error {
	return c.db.Write(ctx, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, c.db.Statement(`UPDATE toy_counters SET n = n + ?, changed_at = now_ms() WHERE name = ?`), n, c.db.Text(name))
		if err != nil {
			return err
		}
		if changed, err := result.RowsAffected(); err != nil || changed > 0 {
			return err
		}
		_, err = tx.ExecContext(ctx, c.db.Statement(`INSERT INTO toy_counters (name, n, changed_at) VALUES (?, ?, now_ms())`), c.db.Text(name), n)
		return err
	})
}

func (c *counters) get(ctx context.Context, name string) (n int, err error) {
	err = c.db.Query(ctx, func() { n = 0 }, func(rows *sql.Rows) error { return rows.Scan(&n) },
		c.db.Statement(`SELECT n FROM toy_counters WHERE name = ? AND changed_at > 0`), c.db.Text(name))
	return n, err
}

// Feature I1: a table more costs its SQL and its Go, which is above: it is made and upgraded on each database, and its
// statements run there.
func TestToyStore(t *testing.T) {
	files := testkit.Must(fs.Sub(toyFiles, "testdata/toy"))
	onEach(t, func(t *testing.T, d testDatabase) {
		db := d.fresh(t)
		first := counterTable(files)
		first.Versions = first.Versions[:1]
		testkit.NoError(t, d.upgrade(t, db, first))
		exec(t, db, `INSERT INTO toy_counters (name, n) VALUES ('a', 3)`)
		c := testkit.Must(newCounters(t.Context(), db, counterTable(files)))
		for name, want := range map[string]int{"a": 5, "b": 2} {
			testkit.Is(t, c.add(t.Context(), name, 2), nil)
			testkit.Returns(t, want)(c.get(t.Context(), name))
		}
	})
}

package sqlite_test

import (
	"database/sql"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/watermill-spillway/spillway/internal/database/schema"
	"github.com/watermill-spillway/spillway/internal/database/sqlite"
	"github.com/watermill-spillway/spillway/internal/keytable"
)

// unversioned is what was made before tables had versions, with a row.
const unversioned = `CREATE TABLE spillway_keys (consumer TEXT NOT NULL, id TEXT NOT NULL, outputs BLOB, applied_at INTEGER NOT NULL,
PRIMARY KEY (consumer, id)); INSERT INTO spillway_keys VALUES ('billing', '1', 'out', 7)`

func openFile(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func newFile(t *testing.T, statements ...string) *sql.DB {
	t.Helper()
	db := openFile(t, filepath.Join(t.TempDir(), "test.db"))
	exec(t, db, statements...)
	return db
}

func exec(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func text(t *testing.T, db *sql.DB, question string) string {
	t.Helper()
	var s sql.NullString
	if err := db.QueryRow(question).Scan(&s); err != nil {
		t.Fatalf("%s: %v", question, err)
	}
	return s.String
}

// catalog tells everything that an upgrade could change.
func catalog(t *testing.T, db *sql.DB) string {
	t.Helper()
	return text(t, db, `PRAGMA schema_version`) + text(t, db, `SELECT group_concat(sql, ';') FROM sqlite_master`)
}

func recorded(t *testing.T, db *sql.DB) string {
	t.Helper()
	return text(t, db, `SELECT group_concat(component || version || ' ' || applied_at) FROM (SELECT * FROM spillway_schema WHERE component = 'keys' AND applied_at BETWEEN 1.6e12 AND 1e13 ORDER BY version)`)
}

func byHand(t *testing.T, db *sql.DB) {
	t.Helper()
	files, err := fs.Glob(keytable.Files(), "sqlite/*.sql")
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := fs.ReadFile(keytable.Files(), file)
		if err != nil {
			t.Fatal(err)
		}
		exec(t, db, string(text))
	}
}

// Feature I1: ten processes that start at once make the table, or upgrade the one that is there with its rows.
func TestUpgrade(t *testing.T) {
	for _, mode := range []string{"wal", "delete"} {
		for rows, before := range map[string]string{"0": `SELECT 1`, "1": unversioned} {
			path := filepath.Join(t.TempDir(), "test.db") // without a busy time-out of the driver
			db := openFile(t, path)
			exec(t, db, `PRAGMA journal_mode = `+mode, before)
			start := make(chan struct{})
			var all sync.WaitGroup
			for range 10 {
				db := openFile(t, path)
				all.Go(func() {
					<-start
					if err := sqlite.Upgrade(t.Context(), db, keytable.SQLite); err != nil {
						t.Error(err)
					}
				})
			}
			close(start)
			all.Wait()
			if r := recorded(t, db); !strings.HasPrefix(r, "keys1 ") || !strings.Contains(r, ",keys2 ") {
				t.Errorf("recorded: %s", r)
			}
			if got := text(t, db, `SELECT count(*) FROM spillway_keys WHERE outputs = 'out' AND applied_at = 7 AND expires_at IS NULL AND fence IS NULL`); got != rows {
				t.Errorf("%s rows, want %s", got, rows)
			}
			if c := catalog(t, db); strings.Count(c, "spillway_keys_applied_at") != 1 || strings.Count(c, "expires_at") != 1 {
				t.Error(c)
			}
			found := catalog(t, db) + recorded(t, db)
			if err := sqlite.Upgrade(t.Context(), db, keytable.SQLite); err != nil || catalog(t, db)+recorded(t, db) != found {
				t.Errorf("once more: %v", err)
			}
		}
	}
}

// Feature I1: who ran the files has nothing done twice, and what was done in part is completed.
func TestUpgradeByHand(t *testing.T) {
	for _, before := range []string{`SELECT 1`, unversioned} {
		db := newFile(t, before)
		byHand(t, db)
		found := catalog(t, db) + recorded(t, db)
		if err := sqlite.Upgrade(t.Context(), db, keytable.SQLite); err != nil || catalog(t, db)+recorded(t, db) != found {
			t.Errorf("something changed: %v", err)
		}
	}
	for i := range 8 {
		db := newFile(t, unversioned)
		all := append(append([]string{}, keytable.SQLite.Steps[0].Statements...), keytable.SQLite.Steps[1].Statements...)
		exec(t, db, all[:min(i+1, len(all))]...)
		if err := sqlite.Upgrade(t.Context(), db, keytable.SQLite); err != nil || !strings.Contains(recorded(t, db), "keys2") {
			t.Errorf("after %d statements: %v", i+1, err)
		}
	}
}

// Feature I1: a record without its columns, as after a restored backup, and columns without their record are made good.
// What is recorded of other tables does not matter.
func TestUpgradeRecordIsWrong(t *testing.T) {
	db := newFile(t)
	byHand(t, db)
	for _, then := range []string{`INSERT INTO spillway_schema VALUES ('other', 7, 0)`, `DELETE FROM spillway_schema WHERE version = 1`,
		`ALTER TABLE spillway_keys DROP COLUMN fence`, `DROP TABLE spillway_keys`, `DROP TABLE spillway_schema`} {
		exec(t, db, then)
		if err := sqlite.Upgrade(t.Context(), db, keytable.SQLite); err != nil || !strings.Contains(recorded(t, db), ",keys2") {
			t.Errorf("%s: %v, %s", then, err, recorded(t, db))
		}
	}
}

// Feature I1: what is not ours, or newer than we are, is refused as it is; an upgrade that fails leaves nothing.
func TestUpgradeRefuses(t *testing.T) {
	for want, before := range map[string]string{
		"primary key ()":      `CREATE TABLE spillway_keys (consumer, id, outputs, applied_at)`,
		`column "applied_at"`: `CREATE TABLE spillway_keys (consumer, id, outputs, PRIMARY KEY (consumer, id))`,
		"none after 2: a new": unversioned + `; CREATE TABLE spillway_schema (component, version); INSERT INTO spillway_schema VALUES ('other', 4), ('keys', 3)`,
	} {
		db := newFile(t, before)
		found := catalog(t, db)
		if err := sqlite.Upgrade(t.Context(), db, keytable.SQLite); err == nil || !strings.Contains(err.Error(), want) || catalog(t, db) != found {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := sqlite.Upgrade(t.Context(), nil, keytable.SQLite); err == nil {
		t.Error("a nil db passes")
	}
	if err := sqlite.Upgrade(t.Context(), openFile(t, ":memory:"), keytable.SQLite); err == nil || !strings.Contains(err.Error(), "no file") {
		t.Error(err)
	}
	db := newFile(t, unversioned)
	found := catalog(t, db)
	broken := keytable.SQLite
	broken.Steps = append([]schema.Step{}, broken.Steps...)
	broken.Steps[1].Statements = append(append([]string{}, broken.Steps[1].Statements...), `CREATE nonsense`)
	if err := sqlite.Upgrade(t.Context(), db, broken); err == nil || !strings.Contains(err.Error(), "sqlite/0002_leases.sql") || catalog(t, db) != found {
		t.Errorf("%v\n%s", err, catalog(t, db))
	}
}

package postgres_test

import (
	"crypto/rand"
	"database/sql"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"github.com/watermill-spillway/spillway/internal/database/postgres"
	"github.com/watermill-spillway/spillway/internal/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/internal/database/schema"
	"github.com/watermill-spillway/spillway/internal/keytable"
)

// unversioned is what was made before tables had versions, with a row.
const unversioned = `CREATE TABLE spillway_keys (consumer text COLLATE "C" NOT NULL, id text COLLATE "C" NOT NULL, outputs bytea,
applied_at bigint NOT NULL, PRIMARY KEY (consumer, id)); INSERT INTO spillway_keys VALUES ('billing', '1', 'out', 7)`

func exec(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// catalog tells everything that an upgrade could change, objects by their numbers and rows by their transactions.
func catalog(t *testing.T, db *sql.DB) (s string) {
	t.Helper()
	if err := db.QueryRow(`SELECT COALESCE((SELECT string_agg(concat_ws(' ', c.oid, c.relname, c.relfilenode, a.attname, a.atttypid::regtype, a.xmin), E'\n'
ORDER BY c.relname, a.attnum) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relnamespace = current_schema()::regnamespace AND a.attnum > 0), '')`).Scan(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

func recorded(t *testing.T, db *sql.DB) (s string) {
	t.Helper()
	if err := db.QueryRow(`SELECT string_agg(concat(component, version, ' ', xmin), ',' ORDER BY version) FROM spillway_schema WHERE component = 'keys' AND applied_at BETWEEN 1.6e12 AND 1e13`).Scan(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

func byHand(t *testing.T, db *sql.DB) {
	t.Helper()
	files, err := fs.Glob(keytable.Files(), "postgres/*.sql")
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
	for name, before := range map[string]string{"fresh": `SELECT 1`, "unversioned": unversioned} {
		t.Run(name, func(t *testing.T) {
			address := postgrestest.Schema(t)
			db := postgrestest.Open(t, address)
			exec(t, db, before)
			start := make(chan struct{})
			var all sync.WaitGroup
			for range 10 {
				db := postgrestest.Open(t, address)
				if err := db.Ping(); err != nil {
					t.Fatal(err)
				}
				all.Go(func() {
					<-start
					if err := postgres.Upgrade(t.Context(), db, keytable.Postgres); err != nil {
						t.Error(err)
					}
				})
			}
			close(start)
			all.Wait()
			if !strings.HasPrefix(recorded(t, db), "keys1 ") || !strings.Contains(recorded(t, db), ",keys2 ") {
				t.Errorf("recorded: %s", recorded(t, db))
			}
			exec(t, db, `INSERT INTO spillway_keys (consumer, id, applied_at, fingerprint, version, fence, expires_at) VALUES ('c', 'i', 1, '\xff', 2, 3, 4)`)
			var rows, indexes int
			if err := db.QueryRow(`SELECT count(*), (SELECT count(*) FROM pg_indexes WHERE indexname = 'spillway_keys_applied_at' AND schemaname = current_schema())
FROM spillway_keys WHERE id = 'i' OR id = '1' AND outputs = 'out' AND applied_at = 7 AND expires_at IS NULL`).Scan(&rows, &indexes); err != nil ||
				indexes != 1 || rows != 1 && name == "fresh" || rows != 2 && name != "fresh" {
				t.Error(rows, indexes, err)
			}
			before := catalog(t, db) + recorded(t, db)
			if err := postgres.Upgrade(t.Context(), db, keytable.Postgres); err != nil || catalog(t, db)+recorded(t, db) != before {
				t.Errorf("once more: %v\n%s\n%s", err, before, catalog(t, db)+recorded(t, db))
			}
		})
	}
}

// Feature I1: who ran the files has nothing done twice, however the index was made, and may run them again.
func TestUpgradeByHand(t *testing.T) {
	for _, before := range []string{`SELECT 1`, unversioned} {
		db := postgrestest.Open(t, postgrestest.Schema(t))
		exec(t, db, before)
		byHand(t, db)
		found := catalog(t, db) + recorded(t, db)
		if err := postgres.Upgrade(t.Context(), db, keytable.Postgres); err != nil || catalog(t, db)+recorded(t, db) != found {
			t.Errorf("something changed: %v", err)
		}
		byHand(t, db)
		if catalog(t, db)+recorded(t, db) != found {
			t.Error("the files change something when they run again")
		}
	}
	db := postgrestest.Open(t, postgrestest.Schema(t))
	exec(t, db, unversioned, `ALTER TABLE spillway_keys ADD COLUMN fence bigint`,
		`CREATE INDEX spillway_keys_applied_at ON spillway_keys (applied_at)`) // CONCURRENTLY would wait for other tests' transactions
	if err := postgres.Upgrade(t.Context(), db, keytable.Postgres); err != nil || strings.Count(catalog(t, db), "applied_at") != 4 {
		t.Errorf("%v\n%s", err, catalog(t, db))
	}
}

// Feature I1: what is not ours, or newer than we are, is refused as it is.
func TestUpgradeRefuses(t *testing.T) {
	for want, before := range map[string][]string{
		"primary key ()": {`CREATE TABLE spillway_keys (consumer text, id text, outputs bytea, applied_at bigint)`},
		`column "applied_at"`: {
			`CREATE TABLE spillway_keys (consumer text, id text, outputs bytea, PRIMARY KEY (consumer, id))`},
		"unlogged": {strings.Replace(unversioned, "CREATE", "CREATE UNLOGGED", 1)},
		"of version 3, and this program knows none after 2": {unversioned,
			`CREATE TABLE spillway_schema (component text, version bigint, applied_at bigint)`, `INSERT INTO spillway_schema VALUES ('keys', 3, 0), ('other', 4, 0)`},
	} {
		db := postgrestest.Open(t, postgrestest.Schema(t))
		exec(t, db, before...)
		found := catalog(t, db)
		if err := postgres.Upgrade(t.Context(), db, keytable.Postgres); err == nil || !strings.Contains(err.Error(), want) || catalog(t, db) != found {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := postgres.Upgrade(t.Context(), nil, keytable.Postgres); err == nil {
		t.Error("a nil db passes")
	}
}

// Feature I1: an upgrade that fails leaves nothing, and names its file; one that did not do enough is noticed.
func TestUpgradeIsWhole(t *testing.T) {
	db := postgrestest.Open(t, postgrestest.Schema(t))
	exec(t, db, unversioned)
	found := catalog(t, db)
	broken := keytable.Postgres
	broken.Steps = append([]schema.Step{}, broken.Steps...)
	broken.Steps[1].Statements = append(append([]string{}, broken.Steps[1].Statements...), `CREATE nonsense`)
	if err := postgres.Upgrade(t.Context(), db, broken); err == nil || !strings.Contains(err.Error(), "postgres/0002_leases.sql") || catalog(t, db) != found {
		t.Errorf("%v\n%s", err, catalog(t, db))
	}
	more := keytable.Postgres
	more.Table.Columns = append([]string{"more"}, more.Table.Columns...)
	if err := postgres.Upgrade(t.Context(), db, more); err == nil || !strings.Contains(err.Error(), `without column "more"`) {
		t.Error(err)
	}
}

// Feature I1: a record without its columns, as after a restored backup, and columns without their record are made good.
// What is recorded of other tables does not matter.
func TestUpgradeRecordIsWrong(t *testing.T) {
	db := postgrestest.Open(t, postgrestest.Schema(t))
	byHand(t, db)
	for _, then := range []string{`INSERT INTO spillway_schema VALUES ('other', 7, 0)`, `DELETE FROM spillway_schema WHERE version = 1`,
		`DROP TABLE spillway_keys; ` + unversioned, `DROP TABLE spillway_keys`, `DROP TABLE spillway_schema`} {
		exec(t, db, then)
		if err := postgres.Upgrade(t.Context(), db, keytable.Postgres); err != nil || !strings.Contains(recorded(t, db), ",keys2 ") {
			t.Errorf("%s: %v, %s", then, err, recorded(t, db))
		}
	}
}

// Feature I1: the table is upgraded where it is along the search path, and gets no empty twin in front of it.
func TestUpgradeAlongTheSearchPath(t *testing.T) {
	db := postgrestest.Open(t, postgrestest.Schema(t))
	exec(t, db, unversioned)
	var behind string
	if err := db.QueryRow(`SELECT current_schema()`).Scan(&behind); err != nil {
		t.Fatal(err)
	}
	first := postgrestest.Open(t, postgrestest.Schema(t))
	first.SetMaxOpenConns(1)
	exec(t, first, `SELECT set_config('search_path', current_schema() || ', "no such Schema", `+behind+`', false)`,
		`CREATE TABLE spillway_schema (component text, version bigint, applied_at bigint)`, `INSERT INTO spillway_schema VALUES ('keys', 3, 0)`)
	found := catalog(t, first)
	if err := postgres.Upgrade(t.Context(), first, keytable.Postgres); err != nil || catalog(t, first) != found {
		t.Errorf("%v\n%s", err, catalog(t, first))
	}
	if r := recorded(t, db); !strings.Contains(r, "keys2") {
		t.Error(r)
	}
	exec(t, first, `INSERT INTO spillway_keys (consumer, id, applied_at, fence) VALUES ('c', 'i', 1, 1)`)
}

// Feature I1: a role without rights starts where the table is current, recorded or not, and else is told the file.
func TestUpgradeWithoutRights(t *testing.T) {
	address := postgrestest.Schema(t)
	owner := postgrestest.Open(t, address)
	role := "spillway_test_" + strings.ToLower(rand.Text()[:12])
	exec(t, owner, unversioned, `CREATE ROLE `+role)
	t.Cleanup(func() { exec(t, owner, `DROP OWNED BY `+role, `DROP ROLE `+role) })
	exec(t, owner, fmt.Sprintf(`DO $$ BEGIN EXECUTE format('GRANT USAGE ON SCHEMA %%I TO %s', current_schema()); END $$`, role),
		`GRANT SELECT, INSERT, UPDATE, DELETE ON spillway_keys TO `+role)
	db := postgrestest.Open(t, address)
	db.SetMaxOpenConns(1)
	exec(t, db, `SET ROLE `+role)
	if err := postgres.Upgrade(t.Context(), db, keytable.Postgres); postgres.State(err) != "42501" || !strings.Contains(err.Error(), "postgres/0001_keys.sql") {
		t.Errorf("an old table: %v", err)
	}
	byHand(t, owner)
	for _, then := range []string{`SELECT 1`, `GRANT SELECT ON spillway_schema TO ` + role, `DELETE FROM spillway_schema WHERE version = 2`, `DROP TABLE spillway_schema`} {
		exec(t, owner, then)
		if err := postgres.Upgrade(t.Context(), db, keytable.Postgres); err != nil {
			t.Errorf("%s: %v", then, err)
		}
	}
	exec(t, db, `RESET ROLE`, `SET default_transaction_read_only = on`)
	if err := postgres.Upgrade(t.Context(), db, keytable.Postgres); err != nil {
		t.Error(err)
	}
}

package classify_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// pgError is shaped like those of pgx, and pqError like those of lib/pq.
type (
	pgError struct{ Code string }
	pqError struct{ Code string }
)

func (e *pgError) Error() string    { return "SQLSTATE " + e.Code }
func (e *pgError) SQLState() string { return e.Code }
func (e pqError) Error() string     { return "pq: " + e.Code }
func (e pqError) SQLState() string  { return e.Code }

// Feature C4: SQLSTATE, by the whole code and by its class, of pointers and of values.
func TestKnowledgeSQLState(t *testing.T) {
	for state, want := range map[string]classify.Class{
		"40001": classify.ClassTransient, "40P01": classify.ClassTransient, "40002": classify.ClassPermanent,
		"08006": classify.ClassTransient, "53300": classify.ClassTransient, "55P03": classify.ClassTransient,
		"57014": classify.ClassTransient, "57P01": classify.ClassTransient, "25006": classify.ClassTransient,
		"23505": classify.ClassPermanent, "23502": classify.ClassPermanent, "23503": classify.ClassUnknown,
		"22P02": classify.ClassPermanent, "42P01": classify.ClassPermanent, "0A000": classify.ClassUnknown,
		"42P05": classify.ClassTransient, "26000": classify.ClassTransient, "25P03": classify.ClassTransient, "25P04": classify.ClassTransient,
		"25P02": classify.ClassUnknown, "XX000": classify.ClassUnknown, "P0001": classify.ClassUnknown,
		"": classify.ClassUnknown, "4": classify.ClassUnknown, "40": classify.ClassUnknown,
		"400011": classify.ClassUnknown, "\x00\xff\xff\xff\xff": classify.ClassUnknown,
	} {
		check(t, "pgx "+state, &pgError{state}, want)
		check(t, "pq "+state, pqError{state}, want)
	}
	v := judge((*pgError)(nil))
	testkit.Check(t, v.Class == classify.ClassUnknown, "a nil pointer: %+v", v)
}

// Feature C4: behind a pooler in transaction mode a prepared statement is met twice, or not at all. The description
// names the remedy, and keeps the error.
func TestKnowledgePooler(t *testing.T) {
	for _, err := range []error{&pgError{"42P05"}, pqError{"26000"}} {
		v := judge(fmt.Errorf("handle: %w", err))
		if !strings.Contains(v.Description, "default_query_exec_mode=exec") || !strings.Contains(v.Description, err.Error()) {
			t.Errorf("%v is described as %q", err, v.Description)
		}
		if v := judge(classify.With(err, classify.Description("mine"))); v.Description != "mine" {
			t.Errorf("the handler's description became %q", v.Description)
		}
	}
}

// MySQLError has the shape of the error in github.com/go-sql-driver/mysql.
type MySQLError struct {
	Number   uint16
	SQLState [5]byte
	Message  string
}

func (e *MySQLError) Error() string { return fmt.Sprintf("Error %d: %s", e.Number, e.Message) }

// Feature C4: MySQL's and MariaDB's error numbers.
func TestKnowledgeMySQL(t *testing.T) {
	for number, want := range map[uint16]classify.Class{
		1213: classify.ClassTransient, 1205: classify.ClassTransient, 1040: classify.ClassTransient, 3572: classify.ClassTransient,
		1290: classify.ClassTransient, 2006: classify.ClassTransient, 1969: classify.ClassTransient,
		1062: classify.ClassPermanent, 1064: classify.ClassPermanent, 1146: classify.ClassPermanent, 1153: classify.ClassPermanent, 1118: classify.ClassPermanent, 1406: classify.ClassPermanent, 4025: classify.ClassPermanent,
		1452: classify.ClassUnknown, 0: classify.ClassUnknown, 65535: classify.ClassUnknown,
	} {
		check(t, fmt.Sprint(number), &MySQLError{Number: number, SQLState: [5]byte([]byte("HY000"))}, want)
	}
	check(t, "nil", errNilMySQL{(*MySQLError)(nil)}, classify.ClassUnknown)
	// Of the same name, but nothing of the shape.
	type MySQLError struct{ error }
	check(t, "lookalike", &MySQLError{errSentinel}, classify.ClassUnknown)
}

type errNilMySQL struct{ *MySQLError }

func (errNilMySQL) Error() string   { return "nil" }
func (e errNilMySQL) Unwrap() error { return e.MySQLError }

func openSQLite(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	testkit.NoError(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Feature C4: real errors of SQLite: busy, full, constraints, too big, read-only, and those that cannot be judged.
func TestKnowledgeSQLite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "test.sqlite")
	db := openSQLite(t, file)
	run := func(db *sql.DB, query string, args ...any) error { _, err := db.Exec(query, args...); return err }
	if err := run(db, `CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT NOT NULL CHECK (v <> 'bad'), u TEXT UNIQUE)`); err != nil {
		t.Fatal(err)
	}
	testkit.NoError(t, run(db, `INSERT INTO t VALUES (1, 'a', 'a')`))
	check(t, "primary key", run(db, `INSERT INTO t VALUES (1, 'b', 'b')`), classify.ClassPermanent)
	check(t, "unique", run(db, `INSERT INTO t VALUES (2, 'b', 'a')`), classify.ClassPermanent)
	check(t, "not null", run(db, `INSERT INTO t VALUES (2, NULL, 'b')`), classify.ClassPermanent)
	check(t, "check", run(db, `INSERT INTO t VALUES (2, 'bad', 'b')`), classify.ClassPermanent)
	check(t, "mismatch", run(db, `INSERT INTO t VALUES ('no number', 'b', 'b')`), classify.ClassPermanent)
	check(t, "too big", run(db, `SELECT zeroblob(2000000000)`), classify.ClassPermanent)
	check(t, "no such table", run(db, `SELECT * FROM nothing`), classify.ClassUnknown)

	other := openSQLite(t, file)
	tx, err := other.Begin()
	testkit.NoError(t, err)
	testkit.NoError(t, testkit.Err(tx.Exec(`INSERT INTO t VALUES (3, 'c', 'c')`)))
	check(t, "busy", run(db, `INSERT INTO t VALUES (4, 'd', 'd')`), classify.ClassTransient)
	_ = tx.Rollback()

	testkit.NoError(t, run(db, `PRAGMA max_page_count = 4`))
	check(t, "full", run(db, `INSERT INTO t VALUES (5, ?, 'e')`, strings.Repeat("x", 1<<20)), classify.ClassTransient)
	check(t, "read-only", run(openSQLite(t, "file:"+file+"?mode=ro"), `DELETE FROM t`), classify.ClassPermanent)
	check(t, "cannot open", openSQLite(t, "file:"+file+"/none?mode=ro").Ping(), classify.ClassTransient)
}

// Feature C4: real errors of database/sql itself.
func TestKnowledgeDatabaseSQL(t *testing.T) {
	db := openSQLite(t, filepath.Join(t.TempDir(), "test.sqlite"))
	tx, err := db.Begin()
	testkit.NoError(t, err)
	_ = tx.Commit()
	check(t, "transaction done", tx.Rollback(), classify.ClassTransient)
	conn, err := db.Conn(context.Background())
	testkit.NoError(t, err)
	_ = conn.Close()
	check(t, "connection done", conn.PingContext(context.Background()), classify.ClassTransient)
	var n int
	check(t, "no rows", db.QueryRow(`SELECT 1 WHERE 0`).Scan(&n), classify.ClassUnknown)
}

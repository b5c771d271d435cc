package database_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature V9: a writer that meets a deadlock, or another in its way, tries again. Other errors return at once.
func TestWrite(t *testing.T) {
	onEach(t, func(t *testing.T, d testDatabase) {
		address := d.create(t)
		exec(t, d.open(t, address), `CREATE TABLE pair (id INT PRIMARY KEY, n INT)`, `INSERT INTO pair VALUES (1, 0), (2, 0)`)
		var both sync.WaitGroup
		both.Add(2)
		var writers sync.WaitGroup
		runs := make(chan int, 20)
		for first := 1; first <= 2; first++ {
			db := database.Of(d.kind, d.open(t, address)) // as a process of its own
			writers.Go(func() {
				met := d.kind == database.SQLite // there one waits for the other
				err := db.Write(t.Context(), func(tx *sql.Tx) error {
					runs <- first
					for _, id := range []int{first, 3 - first} {
						if _, err := tx.Exec(db.Statement(`UPDATE pair SET n = n + 1 WHERE id = ?`), id); err != nil {
							return err
						}
						if !met { // both hold their first row now
							met = true
							both.Done()
							both.Wait()
						}
					}
					return nil
				})
				testkit.Is(t, err, nil)
			})
		}
		writers.Wait()
		db := database.Of(d.kind, d.open(t, address))
		testkit.Equal(t, "sum", text(t, db.DB(), `SELECT SUM(n) FROM pair`), "4")
		testkit.Check(t, len(runs) >= 3 || d.kind == database.SQLite, "%d runs", len(runs))
		boom, tries := errors.New("boom"), 0
		testkit.Is(t, db.Write(t.Context(), func(*sql.Tx) error { tries++; return boom }), boom)
		testkit.Equal(t, "tries", tries, 1)
	})
}

type stateError string

func (stateError) Error() string      { return "failed" }
func (e stateError) SQLState() string { return string(e) }

// Feature V9: there is an end to trying again, and the context is one.
func TestWrite_givesUp(t *testing.T) {
	for kind, undone := range map[int]error{0: stateError("40P01"), 1: &mysqldriver.MySQLError{Number: 1213}} {
		db := database.Of(databases[kind].kind, databases[kind].fresh(t))
		tries := 0
		err := db.Write(t.Context(), func(*sql.Tx) error { tries++; return fmt.Errorf("wrapped: %w", undone) })
		testkit.Is(t, err, undone)
		testkit.Equal(t, "tries", tries, 10)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err = db.Write(ctx, func(*sql.Tx) error { <-ctx.Done(); return undone })
		testkit.Is(t, err, context.DeadlineExceeded)
		testkit.Is(t, err, undone)
	}
}

// Decision 8: on SQLite a writer waits no longer than its context lasts. A read does not wait.
func TestExec_waitsInTheRow(t *testing.T) {
	d := databases[2]
	db := database.Of(d.kind, d.fresh(t, `CREATE TABLE t (a INT)`, `PRAGMA journal_mode = WAL`))
	err := db.Write(t.Context(), func(tx *sql.Tx) error {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		testkit.Is(t, testkit.Err(db.Exec(ctx, `INSERT INTO t VALUES (1)`)), context.DeadlineExceeded)
		n := -1
		err := db.Query(t.Context(), func() { n = 0 }, func(rows *sql.Rows) error { n++; return nil }, `SELECT a FROM t`)
		testkit.Check(t, err == nil && n == 0, "%v, %v", n, err)
		return nil
	})
	testkit.Is(t, err, nil)
	testkit.Returns(t, int64(2))(db.Exec(t.Context(), `INSERT INTO t VALUES (1), (2)`))
}

// Feature I1: the clocks agree with each other and with the test's, on each database, and what is bound comes back.
func TestStatement(t *testing.T) {
	onEach(t, func(t *testing.T, d testDatabase) {
		db := database.Of(d.kind, d.fresh(t))
		var ms, us int64
		testkit.NoError(t, db.DB().QueryRow(db.Statement(`SELECT now_ms(), now_us()`)).Scan(&ms, &us))
		now := time.Now().UnixMilli()
		testkit.Check(t, max(ms-now, now-ms) <= 5000 && max(us/1000-ms, ms-us/1000) <= 1000, "%d, %d, %d", ms, us, now)
		types := map[database.Kind]string{database.Postgres: `a text, b bytea`, database.MySQL: `a VARBINARY(99), b LONGBLOB`, database.SQLite: `a TEXT, b TEXT`}
		exec(t, db.DB(), `CREATE TABLE t (`+types[d.kind]+`)`)
		const readable, hostile = "naïve 🙂", "\x00\xff'"
		insert := db.Statement(`INSERT INTO t VALUES (?, ?)`)
		testkit.Must(db.Exec(t.Context(), insert, db.Text(readable), db.Bytes(hostile)))
		var a, b []byte
		err := db.DB().QueryRow(db.Statement(`SELECT a, b FROM t WHERE a = ? AND b = ?`), db.Text(readable), db.Bytes(hostile)).Scan(&a, &b)
		testkit.Check(t, err == nil && string(a) == readable && string(b) == hostile, "%q, %q, %v", a, b, err)
	})
}

// Feature D6: a value that is larger than the server takes is refused as too large, and no other error is.
func TestTooLarge(t *testing.T) {
	onEach(t, func(t *testing.T, d testDatabase) {
		db, err := database.Open(t.Context(), "test", d.fresh(t, `CREATE TABLE t (a INT)`), "shop")
		testkit.NoError(t, err)
		limit := db.Largest()
		testkit.Require(t, (limit > 0) == (d.kind == database.MySQL), "%v", limit)
		_, err = db.Exec(t.Context(), `INSERT INTO missing VALUES (1)`)
		testkit.Check(t, err != nil && !db.TooLarge(err, 100) && !db.TooLarge(nil, 1<<40) &&
			!db.TooLarge(context.Canceled, 1<<40),
			"%v is too large", err)
		for _, e := range map[database.Kind][]error{
			database.Postgres: {stateError("54000")},
			database.MySQL: {&mysqldriver.MySQLError{Number: 1153}, &mysqldriver.MySQLError{Number: 1118}, mysqldriver.ErrPktTooLarge,
				driver.ErrBadConn},
			database.SQLite: {errors.New("string or blob too big (18)")},
		}[d.kind] {
			testkit.Check(t, db.TooLarge(e, limit), "%v", e)
		}
	})
}

// other is a database of another make.
type other struct{ version string }

func (o other) Connect(context.Context) (driver.Conn, error) { return o, nil }
func (other) Driver() driver.Driver                          { return nil }
func (other) Begin() (driver.Tx, error)                      { return nil, driver.ErrSkip }
func (other) Close() error                                   { return nil }
func (other) Prepare(query string) (driver.Stmt, error)      { return nil, fmt.Errorf("no %q here", query) }

func (o other) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	version, sqlite := strings.CutPrefix(o.version, "SQLite ")
	if o.version == "" || strings.Contains(query, "sqlite") != sqlite {
		return nil, errors.New("unknown function")
	}
	return &oneRow{version, false}, nil
}

type oneRow struct {
	value string
	read  bool
}

func (*oneRow) Columns() []string { return []string{"version"} }
func (*oneRow) Close() error      { return nil }
func (r *oneRow) Next(to []driver.Value) error {
	if r.read {
		return errors.New("no more")
	}
	to[0], r.read = r.value, true
	return nil
}

// Feature V9: a database says what it is. One on which no store can be is an error that says which can be.
func TestDetect(t *testing.T) {
	onEach(t, func(t *testing.T, d testDatabase) {
		testkit.Equal(t, "kind", testkit.Must(database.Detect(t.Context(), d.fresh(t))).Kind(), d.kind)
	})
	for version, want := range map[string]database.Kind{
		"8.0.36-0ubuntu0.22.04.1": database.MySQL, "8.4.3": database.MySQL, "9.1.0": database.MySQL, "10.6.18-MariaDB-log": database.MySQL,
		"11.4.2-MariaDB": database.MySQL, "PostgreSQL 11.22 on x86_64": database.Postgres, "PostgreSQL 18beta1": database.Postgres,
		"SQLite 3.35.0": database.SQLite, "SQLite 4.0": database.SQLite,
		"10.5.23-MariaDB-log": "", "5.7.44": "", "8.0.11-TiDB-v7.5.0": "", "CockroachDB CCL v23.1.0": "", "PostgreSQL 10.1": "", "SQLite 3.34.1": "", "": "",
	} {
		pool := sql.OpenDB(other{version})
		db, err := database.Detect(t.Context(), pool)
		testkit.Check(t, want == "" || !(err != nil || db.Kind() != want),
			"%q is not taken for %s: %v", version, want, err)
		says := fmt.Sprintf("%q", version)
		if version == "" {
			says = "unknown function"
		}
		if want == "" {
			testkit.Says(t, err, says)
			testkit.Says(t, err, "PostgreSQL 11, MySQL 8.0.13, MariaDB 10.6, SQLite 3.35")
		}
		_ = pool.Close()
	}
	testkit.Says(t, testkit.Err(database.Detect(t.Context(), nil)), "nil")
}

// Promise P1: on a database server a service has a name, which names nothing else.
func TestValidateService(t *testing.T) {
	for service, want := range map[string]string{
		"shop": "", "Shop_2.eu-west": "", strings.Repeat("x", 100): "",
		"": "the Service is empty", strings.Repeat("x", 101): "101 bytes", "a/b": `'/'`, "a b": `' '`, "naïve": `'ï'`, "\xff": "character",
	} {
		for _, kind := range []database.Kind{database.Postgres, database.MySQL, database.SQLite} {
			err := database.ValidateService(kind, service)
			ok := want == "" || service == "" && kind == database.SQLite
			testkit.Check(t, ok == (err == nil) && (ok || strings.Contains(err.Error(), want)),
				"%s, %q: %v", kind, service, err)
		}
	}
}

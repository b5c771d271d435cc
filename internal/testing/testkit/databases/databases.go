// Package databases gives a test a database of its own, of each kind: a file of SQLite, a schema in PostgreSQL, a
// database in MariaDB. What is promised of all databases is written once and run on each:
//
//	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
//		db := d.Open(t, address)
//		…
//	})
//
// Without a server a test on it is skipped, and fails in CI.
package databases

import (
	"database/sql"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/go-sql-driver/mysql"
	_ "modernc.org/sqlite" // registers "sqlite"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/internal/testing/faultproxy"
)

// Database is a kind of database.
type Database struct {
	Name string // sqlite, postgres or mariadb
	// Create makes an empty one, which goes with the test, and returns its address.
	Create func(testing.TB) (address string)
	// Open opens a pool of a moderate size at an address, as a process of its own would.
	Open func(t testing.TB, address string) *sql.DB
}

// The kinds.
var (
	SQLite   = Database{"sqlite", file, openFile}
	Postgres = Database{"postgres", postgrestest.Schema, postgrestest.Open}
	MariaDB  = Database{"mariadb", mysqltest.Database, mysqltest.Open}
)

// All are the kinds, SQLite first.
var All = []Database{SQLite, Postgres, MariaDB}

// New makes an empty database and opens it.
func (d Database) New(t testing.TB) *sql.DB {
	t.Helper()
	return d.Open(t, d.Create(t))
}

// Each runs a test on each kind at the same time, in an empty database.
func Each(t *testing.T, test func(t *testing.T, d Database, address string)) {
	for _, d := range All {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			test(t, d, d.Create(t))
		})
	}
}

func file(t testing.TB) string {
	return "file:" + filepath.Join(t.TempDir(), "test.db") +
		"?_pragma=journal_mode(wal)&_pragma=busy_timeout(2000)&_pragma=synchronous(normal)"
}

func openFile(t testing.TB, address string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", address)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxIdleConns(10)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Exec runs statements.
func Exec(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// Text returns the one value that a question has. NULL is an empty text.
func Text(t testing.TB, db *sql.DB, question string) string {
	t.Helper()
	var text sql.NullString
	if err := db.QueryRow(question).Scan(&text); err != nil {
		t.Fatalf("%s: %v", question, err)
	}
	return text.String
}

// Behind opens a pool at an address of a server, whose connections go through a proxy.
func (d Database) Behind(t testing.TB, address string) (*sql.DB, *faultproxy.Proxy) {
	t.Helper()
	var server string
	var through func(proxy string) string
	if d.Name == MariaDB.Name {
		config, err := mysql.ParseDSN(address)
		if err != nil {
			t.Fatal(err)
		}
		server, through = config.Addr, func(proxy string) string { config.Addr = proxy; return config.FormatDSN() }
	} else {
		at, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		server, through = at.Host, func(proxy string) string { at.Host = proxy; return at.String() }
	}
	proxy, err := faultproxy.New(server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return d.Open(t, through(proxy.Addr())), proxy
}

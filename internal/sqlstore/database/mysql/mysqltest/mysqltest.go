// Package mysqltest gives each test a database of its own in the MariaDB that tests use.
package mysqltest

import (
	"crypto/rand"
	"database/sql"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/watermill-spillway/spillway/internal/testing/services"
)

// Database makes an empty database, which goes with the test, and returns its data source name. Without a server the
// test is skipped.
func Database(t testing.TB) string {
	t.Helper()
	config, err := mysql.ParseDSN(services.MySQL(t))
	if err != nil {
		t.Fatal(err)
	}
	// A transaction that a test left open is an error, where by default DROP would wait for a day.
	admin, err := sql.Open("mysql", With(config.FormatDSN(), "lock_wait_timeout=20"))
	if err != nil {
		t.Fatal(err)
	}
	config.DBName = "spillway_test_" + strings.ToLower(rand.Text()[:12])
	if _, err := admin.Exec(`CREATE DATABASE ` + config.DBName + ` CHARACTER SET utf8mb4`); err != nil {
		_ = admin.Close()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := admin.Exec(`DROP DATABASE ` + config.DBName); err != nil {
			t.Error(err)
		}
		_ = admin.Close()
	})
	return config.FormatDSN()
}

// With returns the data source name with more settings, such as "parseTime=true&sql_mode=ANSI".
func With(dsn, settings string) string {
	separator := "?"
	if strings.Contains(dsn, "?") {
		separator = "&"
	}
	return dsn + separator + settings
}

// Open opens a pool of a moderate size, as a process of its own would.
func Open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(20)
	db.SetMaxIdleConns(20)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Kill ends a connection by its CONNECTION_ID(), whose next statement then fails. db must have another one.
func Kill(t testing.TB, db *sql.DB, connection int64) {
	t.Helper()
	if _, err := db.Exec(`KILL ?`, connection); err != nil {
		t.Errorf("connection %d is not ended: %v", connection, err)
	}
}

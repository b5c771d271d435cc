package crash

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"
	_ "modernc.org/sqlite"             // registers "sqlite"

	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
	"github.com/watermill-spillway/spillway/internal/testing/services"
)

// Databases that an example can ask for.
const (
	Postgres = "postgres"
	MySQL    = "mysql"
)

// OpenDatabase opens the database of a run and notes in s how a consumer opens it: a PostgreSQL or a MySQL, as asked
// for, or, asked for "", a PostgreSQL where there is one, else a SQLite. One whose address is given has to be there.
// cleanUp leaves nothing of the run behind.
func OpenDatabase(s *Setting, kind string) (db *sql.DB, cleanUp func() error, err error) {
	server := Postgres
	if kind == MySQL {
		server = "mariadb"
	}
	var remove func() error
	address, missing := services.Lookup(server)
	switch {
	case missing != nil && kind != "":
		return nil, nil, missing
	case missing != nil:
		s.Driver, s.DSN, remove, err = inFolder()
	case kind == MySQL:
		s.Driver, s.DSN, remove, err = inDatabase(address)
	default:
		s.Driver, s.DSN, remove, err = inSchema(address)
	}
	if err != nil {
		return nil, nil, err
	}
	if db, err = sql.Open(s.Driver, s.DSN); err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	cleanUp = func() error { return errors.Join(db.Close(), remove()) }
	for _, table := range []string{webhooks.Schema, counts} {
		if _, err := db.Exec(table); err != nil {
			return nil, nil, errors.Join(err, cleanUp())
		}
	}
	return db, cleanUp, nil
}

// inSchema makes a schema of the run's own, so that runs beside one another do not meet.
func inSchema(address string) (driver, dsn string, remove func() error, err error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" { // the error would show its password
		return "", "", nil, errors.New("the address of PostgreSQL is no URL: let SPILLWAY_POSTGRES be " +
			"postgres://user:password@host:port/database")
	}
	name := "spillway_demo_" + strings.ToLower(rand.Text()[:12])
	if err := execute("pgx", address, `CREATE SCHEMA `+name); err != nil {
		return "", "", nil, fmt.Errorf("make a schema in PostgreSQL: start it, correct SPILLWAY_POSTGRES, or unset it to "+
			"do with SQLite: %w", err)
	}
	query := u.Query()
	query.Set("search_path", name)
	u.RawQuery = query.Encode()
	return "pgx", u.String(), func() error { return execute("pgx", address, `DROP SCHEMA `+name+` CASCADE`) }, nil
}

// inDatabase makes a database of the run's own: MySQL has no schemas within one.
func inDatabase(address string) (driver, dsn string, remove func() error, err error) {
	config, err := mysql.ParseDSN(address)
	if err != nil { // the error could show its password
		return "", "", nil, errors.New("the address of MySQL is none: let SPILLWAY_MYSQL be " +
			"user:password@tcp(host:port)/database")
	}
	config.DBName = "spillway_demo_" + strings.ToLower(rand.Text()[:12])
	if err := execute("mysql", address, `CREATE DATABASE `+config.DBName+` CHARACTER SET utf8mb4`); err != nil {
		return "", "", nil, fmt.Errorf("make a database in MySQL: start it, or correct SPILLWAY_MYSQL: %w", err)
	}
	return "mysql", config.FormatDSN(), func() error {
		return execute("mysql", address, `DROP DATABASE `+config.DBName)
	}, nil
}

func execute(driver, address, statement string) error {
	db, err := sql.Open(driver, address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = db.ExecContext(ctx, statement)
	return errors.Join(err, db.Close())
}

// inFolder is a SQLite database that two processes share, hence the busy time-out.
func inFolder() (driver, dsn string, remove func() error, err error) {
	folder, err := os.MkdirTemp("", "spillway-webhooks-")
	if err != nil {
		return "", "", nil, err
	}
	dsn = "file:" + filepath.Join(folder, "webhooks.db") + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)"
	return "sqlite", dsn, func() error { return os.RemoveAll(folder) }, nil
}

// Database says which database it is, to a person.
func (s *Setting) Database() string {
	switch s.Driver {
	case "pgx":
		return "PostgreSQL"
	case "mysql":
		return "MySQL or MariaDB"
	}
	return "SQLite, as no PostgreSQL answers"
}

// Bind writes a statement's question marks as the database wants them.
func (s *Setting) Bind(statement string) string {
	if s.Driver != "pgx" {
		return statement
	}
	parts := strings.Split(statement, "?")
	for i := range parts[:len(parts)-1] {
		parts[i] += "$" + strconv.Itoa(i+1)
	}
	return strings.Join(parts, "")
}

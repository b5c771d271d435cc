package harness

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"
	_ "modernc.org/sqlite"             // registers "sqlite"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres"
	"github.com/watermill-spillway/spillway/internal/testing/services"
)

// Database is one that is measured: a schema in PostgreSQL, a database in MariaDB, or a file of SQLite, which goes with
// Close.
type Database struct {
	*sql.DB
	Name   string // postgres, mariadb or sqlite
	remove func() error
}

// Open makes an empty database of a kind and opens it with the usual driver.
func Open(ctx context.Context, name string) (*Database, error) {
	driver := map[string]string{"postgres": "pgx", "mariadb": "mysql", "sqlite": "sqlite"}[name]
	if driver == "" {
		return nil, fmt.Errorf("-db %s: give postgres, mariadb or sqlite", name)
	}
	return OpenWith(ctx, name, driver)
}

// OpenWith is Open with the driver that is registered by this name.
func OpenWith(ctx context.Context, name, driver string) (*Database, error) {
	d := &Database{Name: name}
	dsn, err := d.make(ctx, driver, "spillway_bench_"+strings.ToLower(rand.Text()[:8]))
	if err != nil {
		return nil, err
	}
	if d.DB, err = sql.Open(driver, dsn); err != nil {
		return nil, errors.Join(err, d.remove())
	}
	d.SetMaxIdleConns(10)
	return d, nil
}

// Close closes the pool and removes the database.
func (d *Database) Close() error { return errors.Join(d.DB.Close(), d.remove()) }

// Effects makes the table that handlers write to.
func (d *Database) Effects(ctx context.Context) error {
	_, err := d.ExecContext(ctx, `CREATE TABLE effects (id VARCHAR(36) NOT NULL)`)
	return err
}

// Insert is a handler's one statement.
func (d *Database) Insert() string {
	if d.Name == "postgres" {
		return `INSERT INTO effects (id) VALUES ($1)`
	}
	return `INSERT INTO effects (id) VALUES (?)`
}

// make makes the database and returns its data source name.
func (d *Database) make(ctx context.Context, driver, own string) (dsn string, err error) {
	if d.Name == "sqlite" {
		folder, err := os.MkdirTemp("", own)
		d.remove = func() error { return os.RemoveAll(folder) }
		return "file:" + filepath.Join(folder, "bench.db") +
			"?_pragma=journal_mode(wal)&_pragma=busy_timeout(5000)", err
	}
	address, err := services.Lookup(d.Name)
	if err != nil {
		return "", err
	}
	if d.Name == "mariadb" {
		config, err := mysql.ParseDSN(address)
		if err != nil {
			return "", errors.New("the address of MariaDB is no data source name")
		}
		config.DBName = own
		return config.FormatDSN(), d.within(ctx, driver, address, `CREATE DATABASE `+own, `DROP DATABASE `+own)
	}
	u, err := url.Parse(address)
	if err != nil {
		return "", errors.New("the address of PostgreSQL is no URL")
	}
	query := u.Query()
	query.Set("search_path", own)
	u.RawQuery = query.Encode()
	return u.String(), d.within(ctx, driver, address, `CREATE SCHEMA `+own, `DROP SCHEMA IF EXISTS `+own+` CASCADE`)
}

// within makes a place of its own in a server, and notes how to remove it.
func (d *Database) within(ctx context.Context, driver, address, create, drop string) error {
	admin, err := sql.Open(driver, address)
	if err != nil {
		return err
	}
	if _, err := admin.ExecContext(ctx, create); err != nil {
		return errors.Join(err, admin.Close())
	}
	d.remove = func() error {
		_, err := admin.Exec(drop)
		// a connection that was just closed may hold locks yet
		for attempt := 1; attempt < 5 && postgres.Undone(err); attempt++ {
			_, err = admin.Exec(drop)
		}
		return errors.Join(err, admin.Close())
	}
	return nil
}

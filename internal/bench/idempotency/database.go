package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"
	_ "github.com/lib/pq"              // registers "postgres"
	_ "modernc.org/sqlite"             // registers "sqlite"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/idempotency/pgxstore"
	"github.com/watermill-spillway/spillway/internal/services"
)

// side is a database as one driver speaks to it, and its store.
type side struct {
	db, driver, registered string
	consumers              []int
	name                   string
	store                  newStore
	optimistic             bool
	insert                 string // the handler's one statement
}

var sides = []side{
	{"postgres", "pgx", "pgx", []int{1, 8}, "pgxstore", pgxstore.New, false, numbered},
	{"postgres", "pgx", "pgx", []int{1, 8}, "pgxstore", pgxstore.New, true, numbered},
	{"postgres", "pgx", "pgx", []int{1, 8}, "idempotency", idempotency.NewStore, false, numbered},
	{"postgres", "lib/pq", "postgres", []int{1}, "idempotency", idempotency.NewStore, false, numbered},
	{"mariadb", "go-sql-driver", "mysql", []int{1, 8}, "idempotency", idempotency.NewStore, false, marked},
	{"sqlite", "modernc", "sqlite", []int{1}, "idempotency", idempotency.NewStore, false, marked},
}

const (
	numbered = `INSERT INTO effects (id) VALUES ($1)`
	marked   = `INSERT INTO effects (id) VALUES (?)`
)

type newStore = func(context.Context, *sql.DB, idempotency.StoreConfig) (idempotency.Store, error)

// database is the one that is measured, in a schema, a database or a file of its own.
type database struct {
	side
	db     *sql.DB
	keys   idempotency.Store
	remove func() error
}

func open(ctx context.Context, s side) (*database, error) {
	d := &database{side: s}
	dsn, err := d.make(ctx)
	if err != nil {
		return nil, err
	}
	if d.db, err = sql.Open(s.registered, dsn); err != nil {
		return nil, errors.Join(err, d.remove())
	}
	d.db.SetMaxIdleConns(10)
	if _, err := d.db.ExecContext(ctx, `CREATE TABLE effects (id VARCHAR(36) NOT NULL)`); err != nil {
		return nil, errors.Join(err, d.close())
	}
	if d.keys, err = s.store(ctx, d.db, idempotency.StoreConfig{Service: "figures"}); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *database) close() error { return errors.Join(d.db.Close(), d.remove()) }

// make makes the database and returns its data source name.
func (d *database) make(ctx context.Context) (string, error) {
	own := "spillway_test_figures_" + strings.ToLower(rand.Text()[:8])
	if d.side.db == "sqlite" {
		folder, err := os.MkdirTemp("", own)
		d.remove = func() error { return os.RemoveAll(folder) }
		return "file:" + filepath.Join(folder, "figures.db") + "?_pragma=journal_mode(wal)&_pragma=busy_timeout(5000)", err
	}
	address, err := services.Lookup(d.side.db)
	if err != nil {
		return "", err
	}
	if d.side.db == "mariadb" {
		config, err := mysql.ParseDSN(address)
		if err != nil {
			return "", errors.New("the address of MariaDB is no data source name")
		}
		config.DBName = own
		return config.FormatDSN(), d.within(ctx, address, `CREATE DATABASE `+own, `DROP DATABASE `+own)
	}
	u, err := url.Parse(address)
	if err != nil {
		return "", errors.New("the address of PostgreSQL is no URL")
	}
	query := u.Query()
	query.Set("search_path", own)
	u.RawQuery = query.Encode()
	return u.String(), d.within(ctx, address, `CREATE SCHEMA `+own, `DROP SCHEMA `+own+` CASCADE`)
}

// within makes a place of its own in a server, and notes how to remove it.
func (d *database) within(ctx context.Context, address, create, drop string) error {
	admin, err := sql.Open(d.registered, address)
	if err != nil {
		return err
	}
	d.remove = func() error {
		_, err := admin.Exec(drop)
		return errors.Join(err, admin.Close())
	}
	if _, err := admin.ExecContext(ctx, create); err != nil {
		return errors.Join(err, admin.Close())
	}
	return nil
}

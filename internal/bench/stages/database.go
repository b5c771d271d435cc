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
	_ "modernc.org/sqlite"             // registers "sqlite"

	"github.com/watermill-spillway/spillway/delay"
	"github.com/watermill-spillway/spillway/internal/services"
)

// database is one with a delay store, in a schema, a database or a file of its own.
type database struct {
	db     *sql.DB
	store  *delay.Store
	remove func() error
}

func open(ctx context.Context, name string) (d *database, err error) {
	own := "spillway_test_figures_" + strings.ToLower(rand.Text()[:8])
	d = &database{}
	switch name {
	case "sqlite":
		err = d.inFile(ctx, own)
	case "mariadb":
		err = d.inMariaDB(ctx, own)
	default:
		err = d.inPostgres(ctx, own)
	}
	if err != nil {
		return nil, err
	}
	d.db.SetMaxIdleConns(10)
	return d, nil
}

func (d *database) close() error { return errors.Join(d.db.Close(), d.remove()) }

func (d *database) inFile(ctx context.Context, own string) error {
	folder, err := os.MkdirTemp("", own)
	if err != nil {
		return err
	}
	d.remove = func() error { return os.RemoveAll(folder) }
	return d.open(ctx, "sqlite", "file:"+filepath.Join(folder, "figures.db")+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(5000)")
}

func (d *database) inMariaDB(ctx context.Context, own string) error {
	address, err := services.Lookup("mariadb")
	if err != nil {
		return err
	}
	config, err := mysql.ParseDSN(address)
	if err != nil {
		return errors.New("the address of MariaDB is no data source name")
	}
	config.DBName = own
	if err := d.within(ctx, "mysql", address, `CREATE DATABASE `+own, `DROP DATABASE `+own); err != nil {
		return err
	}
	return d.open(ctx, "mysql", config.FormatDSN())
}

func (d *database) inPostgres(ctx context.Context, own string) error {
	address, err := services.Lookup("postgres")
	if err != nil {
		return err
	}
	u, err := url.Parse(address)
	if err != nil {
		return errors.New("the address of PostgreSQL is no URL")
	}
	query := u.Query()
	query.Set("search_path", own)
	u.RawQuery = query.Encode()
	if err := d.within(ctx, "pgx", address, `CREATE SCHEMA `+own, `DROP SCHEMA `+own+` CASCADE`); err != nil {
		return err
	}
	return d.open(ctx, "pgx", u.String())
}

// within makes what the database is in, and sees to it that it goes.
func (d *database) within(ctx context.Context, driver, address, create, drop string) error {
	admin, err := sql.Open(driver, address)
	if err != nil {
		return err
	}
	if _, err := admin.ExecContext(ctx, create); err != nil {
		return errors.Join(err, admin.Close())
	}
	d.remove = func() error {
		_, err := admin.Exec(drop)
		return errors.Join(err, admin.Close())
	}
	return nil
}

func (d *database) open(ctx context.Context, driver, dsn string) error {
	db, err := sql.Open(driver, dsn)
	if err == nil {
		d.db = db
		d.store, err = delay.NewStore(ctx, db, delay.StoreConfig{Service: "bench"})
	}
	if err != nil {
		return errors.Join(err, d.remove())
	}
	return nil
}

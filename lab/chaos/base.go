package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"

	"github.com/watermill-spillway/spillway/internal/testing/services"
)

// base is a schema of PostgreSQL, or a database of MariaDB, that is the campaign's own.
type base struct {
	driver, dsn, host string
	remove            func() error
}

// at is the address of the base by way of another host and port, a proxy's.
func (b base) at(host string) (string, error) {
	if b.driver == "mysql" {
		config, err := mysql.ParseDSN(b.dsn)
		if err != nil {
			return "", errAddress
		}
		config.Addr = host
		return config.FormatDSN(), nil
	}
	u, err := url.Parse(b.dsn)
	if err != nil {
		return "", errAddress
	}
	u.Host = host
	return u.String(), nil
}

// it holds a password
var errAddress = errors.New("the address of the database cannot be read: see SPILLWAY_POSTGRES and SPILLWAY_MYSQL")

// newBase makes one on the server of that name.
func newBase(server, name string) (b base, err error) {
	address, err := services.Lookup(server)
	if err != nil {
		return b, err
	}
	create, drop := `CREATE SCHEMA `+name, `DROP SCHEMA `+name+` CASCADE`
	if server == "mariadb" {
		config, err := mysql.ParseDSN(address)
		if err != nil {
			return b, errAddress
		}
		b.driver, b.host = "mysql", config.Addr
		config.DBName = name
		b.dsn = config.FormatDSN()
		create, drop = `CREATE DATABASE `+name+` CHARACTER SET utf8mb4`, `DROP DATABASE `+name
	} else {
		u, err := url.Parse(address)
		if err != nil {
			return b, errAddress
		}
		b.driver, b.host = "pgx", u.Host
		query := u.Query()
		query.Set("search_path", name)
		u.RawQuery = query.Encode()
		b.dsn = u.String()
	}
	if err := execute(b.driver, address, create); err != nil {
		return b, fmt.Errorf("make a database of the campaign's own: %w", err)
	}
	b.remove = func() error { return execute(b.driver, address, drop) }
	return b, nil
}

func execute(driver, address, statement string) error {
	db, err := sql.Open(driver, address)
	if err != nil {
		return errAddress
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err = db.ExecContext(ctx, statement)
	return errors.Join(err, db.Close())
}

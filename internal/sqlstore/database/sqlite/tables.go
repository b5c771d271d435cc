package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
)

// Require refuses a database that has no file.
func (Engine) Require(ctx context.Context, db *sql.DB) error {
	var file sql.NullString
	err := WhileBusy(ctx, func() error {
		return db.QueryRowContext(ctx, `SELECT file FROM pragma_database_list WHERE name = 'main'`).Scan(&file)
	})
	if err != nil {
		return fmt.Errorf("ask for the database's file: %w", err)
	}
	if file.String == "" {
		return errors.New("the database has no file (:memory: or temporary), so that every pooled connection " +
			"would see a database of its own: open one in a file")
	}
	return nil
}

// Describe returns the table.
func (Engine) Describe(ctx context.Context, s schema.Session, t schema.Table) (f schema.Found, err error) {
	rows, err := s.QueryContext(ctx, `SELECT name, pk FROM pragma_table_info(?) ORDER BY pk`, t.Name)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var name string
		var pk int
		if err := rows.Scan(&name, &pk); err != nil {
			return f, err
		}
		f.Exists = true
		f.Columns = append(f.Columns, name)
		if pk > 0 {
			f.Key = append(f.Key, name)
		}
	}
	return f, rows.Err()
}

// Recorded reads the versions from spillway_schema.
func (Engine) Recorded(ctx context.Context, s schema.Session, _ schema.Found,
	component string) (versions []int, err error) {
	rows, err := s.QueryContext(ctx, `SELECT version FROM spillway_schema WHERE component = ?`, component)
	if err != nil {
		if strings.Contains(err.Error(), "no such table") {
			return nil, nil
		}
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var version int
		if err := rows.Scan(&version); err != nil {
			return nil, err
		}
		versions = append(versions, version)
	}
	return versions, rows.Err()
}

// Alone runs work in one transaction.
func (e Engine) Alone(ctx context.Context, db *sql.DB, _ schema.Table, work func(schema.Session) error) error {
	return e.Write(ctx, db, func(tx *sql.Tx) error { return work(tx) })
}

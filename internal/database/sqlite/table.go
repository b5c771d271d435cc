package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/database/schema"
)

// Ensure makes sure that db is a SQLite database in a file and has the table, and that a table found there under this
// name is the one meant. It may be called again, and by many processes at once. A nil db is an error.
func Ensure(ctx context.Context, db *sql.DB, t schema.Table) error {
	if db == nil {
		return errors.New("sqlite: the *sql.DB is nil")
	}
	if err := refuseMemory(ctx, db); err != nil {
		return err
	}
	if err := create(ctx, db, t); err != nil {
		return fmt.Errorf("sqlite: create table %q: %w", t.Name, err)
	}
	return verify(ctx, db, t)
}

// refuseMemory returns an error for a database that has no file.
func refuseMemory(ctx context.Context, db *sql.DB) error {
	var file sql.NullString
	err := WhileBusy(ctx, func() error {
		return db.QueryRowContext(ctx, `SELECT file FROM pragma_database_list WHERE name = 'main'`).Scan(&file)
	})
	if err != nil {
		return fmt.Errorf("sqlite: ask for the database's file: %w", err)
	}
	if file.String == "" {
		return errors.New("sqlite: the database has no file (:memory: or temporary), so that every pooled connection " +
			"would see a database of its own: open one in a file")
	}
	return nil
}

func create(ctx context.Context, db *sql.DB, t schema.Table) error {
	gate := GateOf(db)
	if err := gate.Lock(ctx); err != nil {
		return err
	}
	defer gate.Unlock()
	return WhileBusy(ctx, func() error {
		return write(ctx, db, func(tx *sql.Tx) error {
			for _, statement := range t.Create {
				if _, err := tx.ExecContext(ctx, statement); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func write(ctx context.Context, db *sql.DB, work func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// verify reads the columns back.
func verify(ctx context.Context, db *sql.DB, t schema.Table) error {
	var columns, key []string
	err := WhileBusy(ctx, func() (err error) {
		columns, key, err = describe(ctx, db, t.Name)
		return err
	})
	if err != nil {
		return fmt.Errorf("sqlite: read the columns of table %q: %w", t.Name, err)
	}
	if err := t.Check(columns, key); err != nil {
		return fmt.Errorf("sqlite: %w", err)
	}
	return nil
}

// querier is a *sql.DB or a *sql.Tx.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// describe returns the columns, and those of the primary key in the key's order.
func describe(ctx context.Context, db querier, table string) (columns, key []string, err error) {
	rows, err := db.QueryContext(ctx, `SELECT name, pk FROM pragma_table_info(?) ORDER BY pk`, table)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var name string
		var pk int
		if err := rows.Scan(&name, &pk); err != nil {
			return nil, nil, err
		}
		columns = append(columns, name)
		if pk > 0 {
			key = append(key, name)
		}
	}
	return columns, key, rows.Err()
}

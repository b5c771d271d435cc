package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/watermill-spillway/spillway/internal/database/schema"
)

// Upgrade is Ensure for a table that grows: it brings the table to its newest version, forward only, with its rows. What
// is at its newest version is not touched. An upgrade is one transaction.
func Upgrade(ctx context.Context, db *sql.DB, v schema.Versions) error {
	if db == nil {
		return errors.New("sqlite: the *sql.DB is nil")
	}
	if err := refuseMemory(ctx, db); err != nil {
		return err
	}
	var pending []schema.Step
	err := WhileBusy(ctx, func() (err error) {
		pending, err = inspect(ctx, db, v)
		return err
	})
	if err == nil && len(pending) > 0 {
		err = upgrade(ctx, db, v)
	}
	if err != nil {
		return fmt.Errorf("sqlite: %w", err)
	}
	return verify(ctx, db, v.Table)
}

func upgrade(ctx context.Context, db *sql.DB, v schema.Versions) error {
	gate := GateOf(db)
	if err := gate.Lock(ctx); err != nil {
		return err
	}
	defer gate.Unlock()
	return WhileBusy(ctx, func() error {
		return write(ctx, db, func(tx *sql.Tx) error {
			pending, err := inspect(ctx, tx, v) // again: others may have been here meanwhile
			if err != nil {
				return err
			}
			for _, step := range pending {
				for _, statement := range step.Statements {
					if _, err := tx.ExecContext(ctx, statement); err != nil && !isThere(err) {
						return fmt.Errorf("create or upgrade table %q, with %s: %w", v.Table.Name, step.File, err)
					}
				}
			}
			return nil
		})
	})
}

// inspect tells what the table needs. A table that is not ours is an error before anything is done to it.
func inspect(ctx context.Context, q querier, v schema.Versions) ([]schema.Step, error) {
	columns, key, err := describe(ctx, q, v.Table.Name)
	if err != nil {
		return nil, fmt.Errorf("read the columns of table %q: %w", v.Table.Name, err)
	}
	if len(columns) > 0 {
		if err := v.Base().Check(columns, key); err != nil {
			return nil, err
		}
	}
	recorded, err := recorded(ctx, q, v.Component)
	if err != nil {
		return nil, fmt.Errorf("read the table spillway_schema: %w", err)
	}
	return v.Pending(schema.State{Columns: columns, Recorded: recorded})
}

func recorded(ctx context.Context, q querier, component string) (versions []int, err error) {
	rows, err := q.QueryContext(ctx, `SELECT version FROM spillway_schema WHERE component = ?`, component)
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

// isThere tells whether a column could not be added because it is there.
func isThere(err error) bool { return strings.Contains(err.Error(), "duplicate column name") }

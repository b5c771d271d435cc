package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/database/schema"
)

// Upgrade is Ensure for a table that grows: it brings the table to its newest version, forward only, with its rows. What
// is at its newest version is not touched: the role then needs no right to create anything. An upgrade is one
// transaction, in the schema of the table that is there.
func Upgrade(ctx context.Context, db *sql.DB, v schema.Versions) error {
	if db == nil {
		return errors.New("postgres: the *sql.DB is nil")
	}
	if err := requireUTF8(ctx, db); err != nil {
		return err
	}
	f, pending, err := inspect(ctx, db, v)
	if err == nil && len(pending) > 0 {
		if err = upgrade(ctx, db, v); err == nil {
			f, err = look(ctx, db, v)
		}
	}
	// Without the right to make the record, or to read it, a table that has every column will do.
	if err != nil && !(v.Complete(f.columns) && mayNot(err)) {
		return err
	}
	return f.check(v.Table)
}

func upgrade(ctx context.Context, db *sql.DB, v schema.Versions) error {
	return Write(ctx, db, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(creating)); err != nil {
			return fmt.Errorf("postgres: wait for others that upgrade: %w", err)
		}
		f, pending, err := inspect(ctx, tx, v) // again: others may have been here meanwhile
		if err != nil {
			return err
		}
		// Otherwise a table in a schema further along the search path would get an empty twin in the first one.
		if f.exists {
			if _, err := tx.ExecContext(ctx, `SELECT set_config('search_path', $1, true)`, f.schema); err != nil {
				return fmt.Errorf("postgres: set the search path: %w", err)
			}
		}
		for _, step := range pending {
			if err := run(ctx, tx, step.Statements); err != nil {
				return fmt.Errorf("postgres: create or upgrade table %q, with %s: %w", v.Table.Name, step.File, err)
			}
		}
		return nil
	})
}

// inspect tells of the table and of what it needs. A table that is not ours is an error before anything is done to it.
func inspect(ctx context.Context, q querier, v schema.Versions) (f found, pending []schema.Step, err error) {
	if f, err = look(ctx, q, v); err != nil {
		return f, nil, err
	}
	if f.exists {
		if err := f.check(v.Base()); err != nil {
			return f, nil, err
		}
	}
	recorded, err := recorded(ctx, q, f.schema, v.Component)
	if err != nil {
		return f, nil, fmt.Errorf("postgres: read the table spillway_schema: %w", err)
	}
	if pending, err = v.Pending(schema.State{Columns: f.columns, Recorded: recorded}); err != nil {
		return f, nil, fmt.Errorf("postgres: %w", err)
	}
	return f, pending, nil
}

func look(ctx context.Context, q querier, v schema.Versions) (found, error) {
	f, err := describe(ctx, q, v.Table.Name)
	if err != nil {
		err = fmt.Errorf("postgres: read the columns of table %q: %w", v.Table.Name, err)
	}
	return f, err
}

// recorded reads the versions from the spillway_schema that lies beside the table, or, without one, where it would be made.
func recorded(ctx context.Context, q querier, beside, component string) (versions []int, err error) {
	var table sql.NullString
	err = each(ctx, q, func(rows *sql.Rows) error { return rows.Scan(&table) },
		`SELECT to_regclass(COALESCE(NULLIF($1, ''), quote_ident(current_schema())) || '.spillway_schema')::text`, beside)
	if err != nil || !table.Valid {
		return nil, err
	}
	err = each(ctx, q, func(rows *sql.Rows) error {
		var version int
		err := rows.Scan(&version)
		versions = append(versions, version)
		return err
	}, `SELECT version FROM `+table.String+` WHERE component = $1`, component)
	return versions, err
}

func each(ctx context.Context, q querier, scan func(*sql.Rows) error, query string, args ...any) (err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// mayNot tells whether the role has no right to do it, or the session may only read.
func mayNot(err error) bool {
	state := State(err)
	return state == "42501" || state == "25006"
}

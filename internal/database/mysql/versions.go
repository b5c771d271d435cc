package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/watermill-spillway/spillway/internal/database/schema"
)

// Upgrade is Ensure for a table that grows: it brings the table to its newest version, forward only, with its rows. What
// is at its newest version is not touched: the user then needs no right to create anything. Each statement of an upgrade
// commits by itself; one that was cut short is completed by the next.
func Upgrade(ctx context.Context, db *sql.DB, v schema.Versions) error {
	if db == nil {
		return errors.New("mysql: the *sql.DB is nil")
	}
	if err := requireAutocommit(ctx, db); err != nil {
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

// upgrade holds a lock that is the connection's, since statements which change tables end every transaction.
func upgrade(ctx context.Context, db *sql.DB, v schema.Versions) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("mysql: take a connection: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if err := lock(ctx, conn); err != nil {
		return fmt.Errorf("mysql: wait for others that upgrade: %w", err)
	}
	defer func() { _, _ = conn.ExecContext(context.WithoutCancel(ctx), `DO RELEASE_LOCK(`+lockName+`)`) }()
	_, pending, err := inspect(ctx, conn, v) // again: others may have been here meanwhile
	if err != nil {
		return err
	}
	for _, step := range pending {
		for _, statement := range step.Statements {
			if _, err := conn.ExecContext(ctx, statement); err != nil && !isThere(err) {
				return fmt.Errorf("mysql: create or upgrade table %q, with %s: %w", v.Table.Name, step.File, err)
			}
		}
	}
	return nil
}

// lockName is one for each database of the server, and short enough for the longest name of one.
const lockName = `CONCAT('spillway_schema.', MD5(DATABASE()))`

// lock asks again and again: a wait without an end is spelled differently in MySQL and MariaDB. On a cluster that knows no
// such locks it goes on without: of two statements that do the same, the second finds it done.
func lock(ctx context.Context, conn *sql.Conn) error {
	for {
		var got sql.NullBool
		err := conn.QueryRowContext(ctx, `SELECT GET_LOCK(`+lockName+`, 1)`).Scan(&got)
		if err != nil && Number(err) != notSupported {
			return err
		}
		if err != nil || got.Bool {
			return nil
		}
		if !got.Valid {
			return errors.New("GET_LOCK returned NULL: the server is out of memory, or ended the wait")
		}
	}
}

// inspect tells of the table and of what it needs. A table that is not ours is an error before anything is done to it.
func inspect(ctx context.Context, q querier, v schema.Versions) (f found, pending []schema.Step, err error) {
	if f, err = look(ctx, q, v); err != nil {
		return f, nil, err
	}
	if f.engine != "" {
		if err := f.check(v.Base()); err != nil {
			return f, nil, err
		}
	}
	var recorded []int
	err = query(ctx, q, v.Component, `SELECT version FROM spillway_schema WHERE component = ?`, func(rows *sql.Rows) error {
		var version int
		err := rows.Scan(&version)
		recorded = append(recorded, version)
		return err
	})
	if err != nil && Number(err) != noTable {
		return f, nil, fmt.Errorf("mysql: read the table spillway_schema: %w", err)
	}
	if pending, err = v.Pending(schema.State{Columns: f.columns, Recorded: recorded}); err != nil {
		return f, nil, fmt.Errorf("mysql: %w", err)
	}
	return f, pending, nil
}

func look(ctx context.Context, q querier, v schema.Versions) (found, error) {
	f, err := describe(ctx, q, v.Table)
	if err != nil {
		err = fmt.Errorf("mysql: read the columns of table %q: %w", v.Table.Name, err)
	}
	return f, err
}

const (
	noTable      = 1146
	notSupported = 1235
)

// isThere tells whether a statement failed because what it makes is there: a table, a column, or an index.
func isThere(err error) bool { return slices.Contains([]uint16{1050, 1060, 1061}, Number(err)) }

// mayNot tells whether the user has no right to do it, or the session or the server may only read.
func mayNot(err error) bool {
	return slices.Contains([]uint16{1044, 1142, 1227, 1290, 1792, 1836}, Number(err))
}

package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
)

// Require refuses connections on which every query begins a transaction that no statement ends, and a server that
// refuses whatever is written at READ COMMITTED.
func (Engine) Require(ctx context.Context, db *sql.DB) error {
	var on, logs bool
	var format string
	err := db.QueryRowContext(ctx, `SELECT @@autocommit, @@log_bin, @@binlog_format`).Scan(&on, &logs, &format)
	switch {
	case err != nil:
		return fmt.Errorf("ask for autocommit and binlog_format: %w", err)
	case logs && strings.EqualFold(format, "STATEMENT"):
		return errors.New(StatementLogRemedy)
	case !on:
		return errors.New("the connections have autocommit=0, so that what is read and written through the *sql.DB itself " +
			"stays in a transaction without an end: leave autocommit on, as it is by default")
	}
	return nil
}

// StatementLogRemedy is what to do about a binary log of statements.
const StatementLogRemedy = "the server has binlog_format=STATEMENT, with which InnoDB refuses writes at READ COMMITTED: set " +
	"binlog_format=ROW or MIXED"

// Describe returns the table of the database that the connection uses. A text has a collation, under which "a" is "A"
// or "a "; BINARY fills up with zeros; and a key may be that of a prefix. Every part of information_schema is asked by
// itself, and for one table: joined, MariaDB scans all databases, and waits for sessions that drop one of them.
func (Engine) Describe(ctx context.Context, s schema.Session, t schema.Table) (f schema.Found, err error) {
	var engine string
	err = query(ctx, s, t.Name, `SELECT COALESCE(ENGINE, 'none') FROM information_schema.TABLES
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?`, func(rows *sql.Rows) error { return rows.Scan(&engine) })
	if err != nil || engine == "" { // if it is made just now, it is not there yet
		return f, err
	}
	f.Exists = true
	whole := map[string]bool{} // columns of the key that are in it with all of their value
	err = query(ctx, s, t.Name, `SELECT COLUMN_NAME, SUB_PART IS NULL FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? AND INDEX_NAME = 'PRIMARY' ORDER BY SEQ_IN_INDEX`, func(rows *sql.Rows) error {
		var name string
		var all bool
		if err := rows.Scan(&name, &all); err != nil {
			return err
		}
		f.Key, whole[name] = append(f.Key, name), all
		return nil
	})
	if err != nil {
		return f, err
	}
	var inexact []string // columns that change what is put into them, or take different values for the same
	known := t.Columns()
	err = query(ctx, s, t.Name, `SELECT COLUMN_NAME, COLLATION_NAME IS NULL AND DATA_TYPE <> 'binary', DATA_TYPE = 'varbinary' AND CHARACTER_MAXIMUM_LENGTH < 255
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? ORDER BY ORDINAL_POSITION`, func(rows *sql.Rows) error {
		var name string
		var exact, short bool
		if err := rows.Scan(&name, &exact, &short); err != nil {
			return err
		}
		f.Columns = append(f.Columns, name)
		if all, inKey := whole[name]; inKey {
			exact = exact && all && !short
		}
		if !exact && slices.Contains(known, name) {
			inexact = append(inexact, name)
		}
		return nil
	})
	f.Unfit = unfit(t.Name, engine, inexact)
	return f, err
}

func unfit(table, engine string, inexact []string) error {
	if !strings.EqualFold(engine, "InnoDB") {
		return fmt.Errorf("table %q has the engine %s, which knows no transactions: make it one of InnoDB", table,
			engine)
	}
	if len(inexact) > 0 {
		return fmt.Errorf("table %q has columns that do not keep bytes as they are, or are part of the primary key with a "+
			"part of their value only: %s; text belongs in VARBINARY(255) or longer, or in LONGBLOB", table,
			strings.Join(inexact, ", "))
	}
	return nil
}

// Recorded reads the versions from spillway_schema.
func (Engine) Recorded(ctx context.Context, s schema.Session, _ schema.Found,
	component string) (versions []int, err error) {
	err = query(ctx, s, component, `SELECT version FROM spillway_schema WHERE component = ?`,
		func(rows *sql.Rows) error {
			var version int
			err := rows.Scan(&version)
			versions = append(versions, version)
			return err
		})
	if Number(err) == noTable {
		return nil, nil
	}
	return versions, err
}

// Alone runs work on one connection while no other process makes or upgrades tables. The lock is the connection's,
// since statements that change tables end every transaction: what was cut short is completed by the next call.
func (Engine) Alone(ctx context.Context, db *sql.DB, _ schema.Table, work func(schema.Session) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("take a connection: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if err := lock(ctx, conn); err != nil {
		return fmt.Errorf("wait for others that upgrade: %w", err)
	}
	defer func() { _, _ = conn.ExecContext(context.WithoutCancel(ctx), `DO RELEASE_LOCK(`+lockName+`)`) }()
	return work(conn)
}

// lockName is one for each database of the server, and short enough for the longest name of one.
const lockName = `CONCAT('spillway_schema.', MD5(DATABASE()))`

// lock asks again and again: a wait without an end is spelled differently in MySQL and MariaDB. On a cluster that knows
// no such locks it goes on without: of two statements that do the same, the second finds it done.
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

const (
	noTable      = 1146
	notSupported = 1235
)

func query(ctx context.Context, s schema.Session, name, statement string, scan func(*sql.Rows) error) (err error) {
	rows, err := s.QueryContext(ctx, statement, name)
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

package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/rerun"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
)

// inMySQL is what MySQL and MariaDB do in their own way.
type inMySQL struct{}

// From UTC: the session's time zone may have an hour that comes twice.
var mysqlClock = strings.NewReplacer(
	"now_ms()", `(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)`,
	"now_us()", `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`,
)

// Statement spells the clocks.
func (inMySQL) Statement(text string) string { return mysqlClock.Replace(text) }

// Text and Bytes bind bytes, so that no character set of the connection changes them.
func (inMySQL) Text(s string) any { return []byte(s) }

// Bytes is Text.
func (inMySQL) Bytes(s string) any { return []byte(s) }

// SkipLocked passes over the rows that others have locked.
func (inMySQL) SkipLocked() string { return ` FOR UPDATE SKIP LOCKED` }

// Write runs work in a transaction, and again if the server undid it because of another one, or if it waited for a lock
// in vain. After a deadlock statements on the same *sql.Tx commit on their own: work must write nothing after an error.
func (inMySQL) Write(ctx context.Context, db *sql.DB, work func(*sql.Tx) error) error {
	return rerun.Write(ctx, db, mysql.Undone, work)
}

// Again runs one statement, and again if the server undid it because of others.
func (inMySQL) Again(ctx context.Context, _ *sql.DB, statement func() error) error {
	return rerun.Statement(ctx, mysql.Undone, statement)
}

// Read runs read once: readers wait for no one.
func (inMySQL) Read(_ context.Context, read func() error) error { return read() }

// Planned runs read: each query is planned for its values anyway.
func (inMySQL) Planned(_ context.Context, db *sql.DB, read func(schema.Session) error) error {
	return read(db)
}

// overhead is for all of a statement, or of a row, that does not come with the message.
const overhead = 8 << 10

// Largest returns what fits into one packet, whichever way it goes.
func (inMySQL) Largest(ctx context.Context, db *sql.DB) (int, error) {
	var packet int
	if err := db.QueryRowContext(ctx, `SELECT @@max_allowed_packet`).Scan(&packet); err != nil {
		return 0, fmt.Errorf("ask for max_allowed_packet: %w", err)
	}
	return max(1, packet-overhead), nil
}

// TooLarge reports whether err, of size bytes, is a refusal for size. The server hangs up in the middle of a packet
// that is too large, so that as a rule its answer is lost. A driver that writes values into the statement may double
// them by escaping. A driver with a lower limit of its own says so in words.
func (inMySQL) TooLarge(err error, size, limit int) bool {
	switch mysql.Number(err) {
	case mysql.PacketTooLarge, mysql.RowTooLarge:
		return true
	case 0:
		ended := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
		return limit > 0 && 2*size > limit && !ended || strings.Contains(err.Error(), "packet for query is too large")
	}
	return false
}

// IsThere reports whether a statement failed because what it makes is there: a table, a column, or an index. It also
// reports whether an index to drop is not there.
func (inMySQL) IsThere(err error) bool {
	return slices.Contains([]uint16{1050, 1060, 1061, 1091}, mysql.Number(err))
}

// MayNot reports whether the user has no right to do it, or the session or the server may only read.
func (inMySQL) MayNot(err error) bool {
	return slices.Contains([]uint16{mysql.ReadOnlyTable, 1044, 1142, 1227, 1290, 1792, 1836}, mysql.Number(err))
}

// Taken reports whether a row with the same unique key is there.
func (inMySQL) Taken(err error) bool { return mysql.Number(err) == mysql.Duplicate }

// PrimaryTaken reports whether a row with the same primary key is there. MariaDB names the index, and MySQL the table
// before it, in each of the server's languages.
func (e inMySQL) PrimaryTaken(err error, _ schema.Table) bool {
	return e.Taken(err) && strings.Contains(err.Error(), "PRIMARY'")
}

// Behind returns false: the server counts on behind each row, however it came in.
func (inMySQL) Behind(context.Context, schema.Session, schema.Table) (bool, error) { return false, nil }

// Renumber lets the server count on behind the rows: it takes no number that is lower.
func (inMySQL) Renumber(t schema.Table) string {
	return `ALTER TABLE ` + t.Name + ` AUTO_INCREMENT = 1`
}

// Require refuses connections on which every query begins a transaction that no statement ends, and a server that
// refuses whatever is written at READ COMMITTED.
func (inMySQL) Require(ctx context.Context, db *sql.DB) error {
	var on, logs bool
	var format string
	err := db.QueryRowContext(ctx, `SELECT @@autocommit, @@log_bin, @@binlog_format`).Scan(&on, &logs, &format)
	switch {
	case err != nil:
		return fmt.Errorf("ask for autocommit and binlog_format: %w", err)
	case logs && strings.EqualFold(format, "STATEMENT"):
		return errors.New(mysql.StatementLogRemedy)
	case !on:
		return errors.New("the connections have autocommit=0, so that what is read and written through the *sql.DB itself " +
			"stays in a transaction without an end: leave autocommit on, as it is by default")
	}
	return nil
}

// Describe returns the table of the database that the connection uses. A text has a collation, under which "a" is "A"
// or "a "; BINARY fills up with zeros; and a key may be that of a prefix. Every part of information_schema is asked by
// itself, and for one table: joined, MariaDB scans all databases, and waits for sessions that drop one of them.
func (inMySQL) Describe(ctx context.Context, s schema.Session, t schema.Table) (f schema.Found, err error) {
	var engine string
	err = Each(ctx, s, func(rows *sql.Rows) error { return rows.Scan(&engine) },
		`SELECT COALESCE(ENGINE, 'none') FROM information_schema.TABLES
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?`, t.Name)
	if err != nil || engine == "" { // if it is made just now, it is not there yet
		return f, err
	}
	f.Exists = true
	whole := map[string]bool{} // columns of the key that are in it with all of their value
	err = Each(ctx, s, func(rows *sql.Rows) error {
		var name string
		var all bool
		if err := rows.Scan(&name, &all); err != nil {
			return err
		}
		f.Key, whole[name] = append(f.Key, name), all
		return nil
	}, `SELECT COLUMN_NAME, SUB_PART IS NULL FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? AND INDEX_NAME = 'PRIMARY' ORDER BY SEQ_IN_INDEX`, t.Name)
	if err != nil {
		return f, err
	}
	var inexact []string // columns that change what is put into them, or take different values for the same
	known := t.Columns()
	err = Each(ctx, s, func(rows *sql.Rows) error {
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
	}, `SELECT COLUMN_NAME, COLLATION_NAME IS NULL AND DATA_TYPE <> 'binary',
DATA_TYPE = 'varbinary' AND CHARACTER_MAXIMUM_LENGTH < 255
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? ORDER BY ORDINAL_POSITION`, t.Name)
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
func (inMySQL) Recorded(ctx context.Context, s schema.Session, _ schema.Found,
	component string) (versions []int, err error) {
	err = Each(ctx, s, Into(&versions), `SELECT version FROM spillway_schema WHERE component = ?`, component)
	if mysql.Number(err) == noTable {
		return nil, nil
	}
	return versions, err
}

// Alone runs work on one connection while no other process makes or upgrades tables. The lock is the connection's,
// since statements that change tables end every transaction: what was cut short is completed by the next call.
func (inMySQL) Alone(ctx context.Context, db *sql.DB, _ schema.Table, work func(schema.Session) error) error {
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
		if err != nil && mysql.Number(err) != notSupported {
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

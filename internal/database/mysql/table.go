package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/watermill-spillway/spillway/internal/database/schema"
)

// Ensure makes sure that the database of db's connections has the table, and that a table found there under this name is
// the one meant: with transactions, and with columns that keep and compare bytes as they are. A table that is there is
// not touched: the user then needs no right to create any. It may be called again, and by many processes at once. A nil
// db is an error.
func Ensure(ctx context.Context, db *sql.DB, t schema.Table) error {
	if db == nil {
		return errors.New("mysql: the *sql.DB is nil")
	}
	if err := requireAutocommit(ctx, db); err != nil {
		return err
	}
	found, err := describe(ctx, db, t)
	if err == nil && found.engine == "" {
		for _, statement := range t.Create { // of two at once the second waits for the first
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("mysql: create table %q: %w", t.Name, err)
			}
		}
		found, err = describe(ctx, db, t)
	}
	if err != nil {
		return fmt.Errorf("mysql: read the columns of table %q: %w", t.Name, err)
	}
	return found.check(t)
}

// requireAutocommit refuses connections on which every query begins a transaction that nobody ends.
func requireAutocommit(ctx context.Context, db *sql.DB) error {
	var on bool
	if err := db.QueryRowContext(ctx, `SELECT @@autocommit`).Scan(&on); err != nil {
		return fmt.Errorf("mysql: ask for autocommit: %w", err)
	}
	if !on {
		return errors.New("mysql: the connections have autocommit=0, so that what is read and written through the *sql.DB itself " +
			"stays in a transaction without an end: leave autocommit on, as it is by default")
	}
	return nil
}

type found struct {
	engine       string
	columns, key []string
	inexact      []string // columns that change what is put into them, or take different values for the same
}

// check returns an error unless what was found can be t.
func (f *found) check(t schema.Table) error {
	if err := t.Check(f.columns, f.key); err != nil {
		return fmt.Errorf("mysql: %w", err)
	}
	if !strings.EqualFold(f.engine, "InnoDB") {
		return fmt.Errorf("mysql: table %q has the engine %s, which knows no transactions: make it one of InnoDB", t.Name, f.engine)
	}
	if len(f.inexact) > 0 {
		return fmt.Errorf("mysql: table %q has columns that do not keep bytes as they are, or are part of the primary key with a "+
			"part of their value only: %s; text belongs in VARBINARY(255) or longer, or in LONGBLOB", t.Name, strings.Join(f.inexact, ", "))
	}
	return nil
}

// describe tells of a table of the database that the connection uses. A text has a collation, under which "a" is "A" or
// "a "; BINARY fills up with zeros; and a key may be that of a prefix. Every part of information_schema is asked by itself,
// and for one table: joined, MariaDB scans all databases, and waits for whoever is dropping one of them.
func describe(ctx context.Context, db querier, t schema.Table) (f found, err error) {
	err = query(ctx, db, t.Name, `SELECT COALESCE(ENGINE, 'none') FROM information_schema.TABLES
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?`, func(rows *sql.Rows) error { return rows.Scan(&f.engine) })
	if err != nil || f.engine == "" { // if it is made just now, it is not there yet
		return f, err
	}
	whole := map[string]bool{} // columns of the key that are in it with all of their value
	err = query(ctx, db, t.Name, `SELECT COLUMN_NAME, SUB_PART IS NULL FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? AND INDEX_NAME = 'PRIMARY' ORDER BY SEQ_IN_INDEX`, func(rows *sql.Rows) error {
		var name string
		var all bool
		if err := rows.Scan(&name, &all); err != nil {
			return err
		}
		f.key, whole[name] = append(f.key, name), all
		return nil
	})
	if err != nil {
		return f, err
	}
	err = query(ctx, db, t.Name, `SELECT COLUMN_NAME, COLLATION_NAME IS NULL AND DATA_TYPE <> 'binary', DATA_TYPE = 'varbinary' AND CHARACTER_MAXIMUM_LENGTH < 255
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? ORDER BY ORDINAL_POSITION`, func(rows *sql.Rows) error {
		var name string
		var exact, short bool
		if err := rows.Scan(&name, &exact, &short); err != nil {
			return err
		}
		f.columns = append(f.columns, name)
		if all, inKey := whole[name]; inKey {
			exact = exact && all && !short
		}
		if !exact && slices.Contains(t.Columns, name) {
			f.inexact = append(f.inexact, name)
		}
		return nil
	})
	return f, err
}

// querier is a *sql.DB or a *sql.Conn.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func query(ctx context.Context, db querier, table, statement string, scan func(*sql.Rows) error) (err error) {
	rows, err := db.QueryContext(ctx, statement, table)
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

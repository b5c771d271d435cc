package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/database/schema"
)

// Ensure makes sure that db has the table, and that a table found under this name along the search path is the one
// meant, and survives a crash. A table that is there is not touched: the role then needs no right to create any. It may
// be called again, and by many processes at once. A nil db is an error.
func Ensure(ctx context.Context, db *sql.DB, t schema.Table) error {
	if db == nil {
		return errors.New("postgres: the *sql.DB is nil")
	}
	if err := requireUTF8(ctx, db); err != nil {
		return err
	}
	found, err := describe(ctx, db, t.Name)
	if err == nil && !found.exists {
		if err := create(ctx, db, t); err != nil {
			return fmt.Errorf("postgres: create table %q: %w", t.Name, err)
		}
		found, err = describe(ctx, db, t.Name)
	}
	if err != nil {
		return fmt.Errorf("postgres: read the columns of table %q: %w", t.Name, err)
	}
	return found.check(t)
}

// check returns an error unless what was found can be t.
func (f *found) check(t schema.Table) error {
	if err := t.Check(f.columns, f.key); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	if !f.permanent {
		return fmt.Errorf("postgres: table %q is temporary or unlogged: it would be empty after a crash; make it a permanent one", t.Name)
	}
	return nil
}

// requireUTF8 refuses a database that could not hold every readable text, and connections that would change it on the way.
func requireUTF8(ctx context.Context, db *sql.DB) error {
	var encoding, client string
	err := db.QueryRowContext(ctx, `SELECT current_setting('server_encoding'), current_setting('client_encoding')`).Scan(&encoding, &client)
	switch {
	case err != nil:
		return fmt.Errorf("postgres: ask for the database's encoding: %w", err)
	case encoding != "UTF8":
		return fmt.Errorf("postgres: the database's encoding is %s, which has no room for some texts: make a database with UTF8", encoding)
	case client != "UTF8":
		return fmt.Errorf("postgres: the connections' client_encoding is %s, which changes texts on the way: leave it at UTF8", client)
	}
	return nil
}

// creating is the lock that makers of tables hold. CREATE TABLE IF NOT EXISTS alone looks first and creates then, so that
// of two at once one fails with a duplicate key in the catalog. The number is "spillway" in ASCII.
const creating = 0x7370696c6c776179

func create(ctx context.Context, db *sql.DB, t schema.Table) error {
	return Write(ctx, db, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(creating)); err != nil {
			return err
		}
		return run(ctx, tx, t.Create)
	})
}

func run(ctx context.Context, tx *sql.Tx, statements []string) error {
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// querier is a *sql.DB or a *sql.Tx.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

type found struct {
	exists, permanent bool
	schema            string // quoted
	columns, key      []string
}

// describe tells of the table that a statement with this name would use: its columns, and those of its primary key in
// the key's order.
func describe(ctx context.Context, db querier, table string) (f found, err error) {
	rows, err := db.QueryContext(ctx, `
SELECT a.attname, k.position IS NOT NULL, c.relpersistence = 'p', c.relnamespace::regnamespace::text
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
LEFT JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, position) ON k.attnum = a.attnum AND k.position <= i.indnkeyatts
WHERE c.oid = to_regclass($1)
ORDER BY k.position NULLS LAST, a.attnum`, table)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var name string
		var inKey bool
		if err := rows.Scan(&name, &inKey, &f.permanent, &f.schema); err != nil {
			return f, err
		}
		f.exists = true
		f.columns = append(f.columns, name)
		if inKey {
			f.key = append(f.key, name)
		}
	}
	return f, rows.Err()
}

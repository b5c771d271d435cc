package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
)

// Require refuses a database that cannot hold every readable text, and connections that would change a text on the way.
func (Engine) Require(ctx context.Context, db *sql.DB) error {
	var encoding, client string
	err := db.QueryRowContext(ctx,
		`SELECT current_setting('server_encoding'), current_setting('client_encoding')`).Scan(&encoding, &client)
	switch {
	case err != nil:
		return fmt.Errorf("ask for the database's encoding: %w", err)
	case encoding != "UTF8":
		return fmt.Errorf("the database's encoding is %s, which has no room for some texts: make a database with UTF8",
			encoding)
	case client != "UTF8":
		return fmt.Errorf("the connections' client_encoding is %s, which changes texts on the way: leave it at UTF8",
			client)
	}
	return nil
}

// Describe returns the table that a statement with this name would use. Place is its schema, quoted. A table that is
// not permanent would be empty after a crash.
func (Engine) Describe(ctx context.Context, s schema.Session, t schema.Table) (f schema.Found, err error) {
	permanent := true
	err = each(ctx, s, func(rows *sql.Rows) error {
		var name string
		var inKey bool
		if err := rows.Scan(&name, &inKey, &permanent, &f.Place); err != nil {
			return err
		}
		f.Exists = true
		f.Columns = append(f.Columns, name)
		if inKey {
			f.Key = append(f.Key, name)
		}
		return nil
	}, `
SELECT a.attname, k.position IS NOT NULL, c.relpersistence = 'p', c.relnamespace::regnamespace::text
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
LEFT JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, position) ON k.attnum = a.attnum AND k.position <= i.indnkeyatts
WHERE c.oid = to_regclass($1)
ORDER BY k.position NULLS LAST, a.attnum`, t.Name)
	if !permanent {
		f.Unfit = fmt.Errorf("table %q is temporary or unlogged: it would be empty after a crash; make it a permanent one",
			t.Name)
	}
	return f, err
}

// Recorded reads the versions from the spillway_schema beside the table. If there is no table, it reads them where the
// table would be made.
func (Engine) Recorded(ctx context.Context, s schema.Session, f schema.Found,
	component string) (versions []int, err error) {
	var table sql.NullString
	err = each(ctx, s, func(rows *sql.Rows) error { return rows.Scan(&table) },
		`SELECT to_regclass(COALESCE(NULLIF($1, ''), quote_ident(current_schema())) || '.spillway_schema')::text`,
		f.Place)
	if err != nil || !table.Valid {
		return nil, err
	}
	err = each(ctx, s, func(rows *sql.Rows) error {
		var version int
		err := rows.Scan(&version)
		versions = append(versions, version)
		return err
	}, `SELECT version FROM `+table.String+` WHERE component = $1`, component)
	return versions, err
}

// creating is the number of the lock that every maker of tables holds. CREATE TABLE IF NOT EXISTS alone looks first and
// creates then, so that of two at once one fails with a duplicate key in the catalog. The number is "spillway" in
// ASCII.
const creating = 0x7370696c6c776179

// Alone runs work in one transaction while no other process makes or upgrades tables. A table that is there is upgraded
// in its own schema: otherwise one further along the search path would get an empty twin in the first schema.
func (e Engine) Alone(ctx context.Context, db *sql.DB, t schema.Table, work func(schema.Session) error) error {
	return e.Write(ctx, db, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(creating)); err != nil {
			return fmt.Errorf("wait for others that upgrade: %w", err)
		}
		f, err := e.Describe(ctx, tx, t)
		if err == nil && f.Exists {
			_, err = tx.ExecContext(ctx, `SELECT set_config('search_path', $1, true)`, f.Place)
		}
		if err != nil {
			return fmt.Errorf("find the schema of table %q: %w", t.Name, err)
		}
		return work(tx)
	})
}

func each(ctx context.Context, s schema.Session, scan func(*sql.Rows) error, query string, args ...any) (err error) {
	rows, err := s.QueryContext(ctx, query, args...)
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

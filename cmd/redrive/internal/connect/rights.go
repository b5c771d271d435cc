package connect

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

// MayNot reports whether a statement failed because the role may only look.
func MayNot(err error) bool {
	var postgres *pgconn.PgError
	if errors.As(err, &postgres) {
		return postgres.Code == "42501" || postgres.Code == "25006"
	}
	var mariadb *mysql.MySQLError
	if errors.As(err, &mariadb) {
		return slices.Contains([]uint16{1044, 1142, 1143, 1227, 1290, 1792}, mariadb.Number)
	}
	var file *sqlite.Error
	return errors.As(err, &file) && file.Code()&0xff == sqlite3.SQLITE_READONLY
}

// Hidden returns those of Spillway's tables whose rows PostgreSQL hides from this role, unless a policy of row-level
// security shows them. What is hidden looks as if it were not there.
func Hidden(ctx context.Context, db *sql.DB) ([]string, error) {
	return tablesWhere(ctx, db, `row_security_active(c.oid)`)
}

// needed is what a table needs to be looked at, or worked on.
const needed = `CASE WHEN has_table_privilege(c.oid, 'SELECT') THEN
	CASE WHEN c.relname NOT IN ('spillway_dead_letters', 'spillway_letter_counts', 'spillway_letter_causes')
		OR has_table_privilege(c.oid, 'INSERT') AND has_table_privilege(c.oid, 'UPDATE') THEN '' ELSE 'work' END
	ELSE 'look' END`

// MayNotLook returns those of Spillway's tables that this role may not read.
func MayNotLook(ctx context.Context, db *sql.DB) ([]string, error) {
	return tablesWhere(ctx, db, needed+` = 'look'`)
}

// MayNotWork returns the tables of letters that this role may read, and not change.
func MayNotWork(ctx context.Context, db *sql.DB) ([]string, error) {
	return tablesWhere(ctx, db, needed+` = 'work'`)
}

// tablesWhere returns Spillway's tables for which PostgreSQL says so. Another database has none.
func tablesWhere(ctx context.Context, db *sql.DB, is string) (names []string, err error) {
	known, err := database.Detect(ctx, db)
	if err != nil || known.Kind() != database.Postgres {
		return nil, err
	}
	err = known.Query(ctx, func() { names = nil }, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		names = append(names, name)
		return err
	}, `SELECT c.relname::text FROM pg_class c WHERE c.relname LIKE 'spillway\_%' AND c.relkind IN ('r', 'p')
	AND pg_table_is_visible(c.oid) AND `+is+` ORDER BY c.relname`)
	if err != nil {
		return nil, fmt.Errorf("ask what this role may see: %w", err)
	}
	return names, nil
}

package idempotency

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// explained adds to the error of a store that db is of another kind than the store, where it is.
func explained(ctx context.Context, db *sql.DB, store string, err error) error {
	if err == nil {
		return nil
	}
	if db != nil {
		if kind := kindOf(ctx, db); kind != "" && kind != store {
			return fmt.Errorf("idempotency: initialize the store: the database is no %s: give idempotency.%s(db): %w", store, kind, err)
		}
	}
	return fmt.Errorf("idempotency: initialize the store: %w", err)
}

// kindOf names the store for db, or none where db does not say what it is.
func kindOf(ctx context.Context, db *sql.DB) string {
	var version string
	if db.QueryRowContext(ctx, `SELECT version()`).Scan(&version) == nil {
		switch {
		case strings.HasPrefix(version, "PostgreSQL "):
			return "Postgres"
		case strings.Contains(version, "MariaDB"), strings.HasPrefix(version, "8."), strings.HasPrefix(version, "9."):
			return "MySQL"
		}
		return ""
	}
	if db.QueryRowContext(ctx, `SELECT sqlite_version()`).Scan(&version) == nil {
		return "SQLite"
	}
	return ""
}

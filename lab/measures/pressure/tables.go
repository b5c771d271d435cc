package main

import (
	"context"
	"database/sql"
	"strings"

	"github.com/watermill-spillway/spillway/lab/internal/harness"
)

// pin opens a transaction that keeps its snapshot, as a program does that forgot it.
func pin(ctx context.Context, db *harness.Database) (release func(), err error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return nil, err
	}
	var rows int
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM effects`).Scan(&rows); err != nil {
		_ = tx.Rollback()
		return nil, err
	}
	return func() { _ = tx.Rollback() }, nil
}

// sizes adds, for each table: its live and dead rows as PostgreSQL counts them, and the KiB of the table and of its
// indexes.
func sizes(ctx context.Context, db *harness.Database, figure harness.Figure) error {
	rows, err := db.QueryContext(ctx, `SELECT relname, n_live_tup, n_dead_tup, pg_table_size(relid) / 1024,
pg_indexes_size(relid) / 1024 FROM pg_stat_user_tables WHERE schemaname = current_schema() AND relname LIKE 'spillway%' ORDER BY relname`)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var table string
		var live, dead, size, indexes int64
		if err := rows.Scan(&table, &live, &dead, &size, &indexes); err != nil {
			return err
		}
		if live+dead > 0 {
			figure[strings.TrimPrefix(table, "spillway_")] = map[string]int64{
				"live": live, "dead": dead, "kib": size, "index_kib": indexes,
			}
		}
	}
	return rows.Err()
}

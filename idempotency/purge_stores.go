package idempotency

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/internal/keytable"
)

// Purge deletes at most limit keys that were applied before a time, the oldest first, and returns how many it deleted.
// Keys under a lease stay until it is over. It is one short transaction on a connection of the pool, which passes over
// keys that somebody is about to change: fewer than limit were deleted when there are no more, or when the others were
// locked. A Purge calls it on a schedule.
func (s *postgresStore) Purge(ctx context.Context, before time.Time, limit int) (int, error) {
	return purge(ctx, "postgres", s.db, before, limit, keytable.PurgePostgres)
}

// Purge is as that of postgresStore. MariaDB before 10.6 cannot pass over locked keys: there it waits for them, up to
// innodb_lock_wait_timeout, and a transaction that enters many keys can be undone by the server as being in its way.
func (s *mysqlStore) Purge(ctx context.Context, before time.Time, limit int) (int, error) {
	return purge(ctx, "mysql", s.db, before, limit, keytable.PurgeMySQL)
}

// Purge is as that of postgresStore. Claims of the process wait in a row with it, so limit decides for how long: a key
// takes some microseconds.
func (s *sqliteStore) Purge(ctx context.Context, before time.Time, limit int) (int, error) {
	return purge(ctx, "sqlite", s.db, before, limit, keytable.PurgeSQLite)
}

func purge(ctx context.Context, name string, db *sql.DB, before time.Time, limit int, on func(context.Context, *sql.DB, int64, int) (int, error)) (int, error) {
	if limit <= 0 {
		return 0, fmt.Errorf("%s: purge keys: the limit is %d, and must be positive", name, limit)
	}
	return on(ctx, db, before.UnixMilli(), limit)
}

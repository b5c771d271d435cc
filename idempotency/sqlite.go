package idempotency

import (
	"context"
	"database/sql"
	"time"

	"github.com/watermill-spillway/spillway/internal/database/sqlite"
	"github.com/watermill-spillway/spillway/internal/keytable"
)

// sqliteStore is a Store in a SQLite database, in the table spillway_keys. Its columns consumer and id hold the key as it
// is where a person can read it, else "sha256:" and the hash; the others are told of in the files of Schema.
//
// A claim holds the database's write lock. Within the process claims wait in a row, together with all other stores of
// Spillway on the same *sql.DB; for another process they ask again for up to 30 seconds. Either wait ends with the
// context given to Claim, the second at the latest when the driver's own busy time-out has passed. Where processes share
// the file, open it in WAL mode and with a busy time-out: else SQLite refuses a commit while another process reads, which
// rolls back and is a transient error.
type sqliteStore struct {
	base
	gate *sqlite.Gate
}

// Claim waits for the write lock and enters the key. See Store.
func (s *sqliteStore) Claim(ctx context.Context, entry Entry) (_ Claim, err error) {
	if err := s.gate.Lock(ctx); err != nil {
		return nil, err
	}
	entered := false
	defer func() { // also when the driver panics: a gate left locked would stop every writer
		if !entered {
			s.gate.Unlock()
		}
	}()
	c := &sqliteClaim{store: s, row: entry.row()}
	if err := sqlite.WhileBusy(ctx, func() error { return c.begin(ctx) }); err != nil {
		return nil, err
	}
	entered = true
	return c, nil
}

// Lease waits for the write lock, and gives it back at once: handlers of different keys run at the same time. See Store.
func (s *sqliteStore) Lease(ctx context.Context, entry Entry, d time.Duration) (Lease, error) {
	return leased(ctx, keytable.LeasesInSQLite(s.db), entry, d)
}

// MarkPublished waits for the write lock too. See Store.
func (s *sqliteStore) MarkPublished(ctx context.Context, entry Entry) error {
	if err := s.gate.Lock(ctx); err != nil {
		return err
	}
	defer s.gate.Unlock()
	return sqlite.WhileBusy(ctx, func() error { return keytable.InSQLite.Published(ctx, s.db, entry.row()) })
}

// locks tells whether a claim keeps everybody else out of db: SQLite has one write lock.
func (s *sqliteStore) locks(db *sql.DB) bool { return s.db == db }

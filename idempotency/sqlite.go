package idempotency

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/watermill-spillway/spillway/internal/database"
	"github.com/watermill-spillway/spillway/internal/database/sqlite"
	"github.com/watermill-spillway/spillway/internal/keytable"
)

// SQLiteStore is a Store in a SQLite database, in the table spillway_keys. Its columns consumer and id hold the key as it
// is where a person can read it, else "sha256:" and the hash; the others are told of in the files of Schema.
//
// A claim holds the database's write lock. Within the process claims wait in a row, together with all other stores of
// Spillway on the same *sql.DB; for another process they ask again for up to 30 seconds. Either wait ends with the
// context given to Claim, the second at the latest when the driver's own busy time-out has passed. Where processes share
// the file, open it in WAL mode and with a busy time-out: else SQLite refuses a commit while another process reads, which
// rolls back and is a transient error.
type SQLiteStore struct {
	db   *sql.DB
	gate *sqlite.Gate
}

// SQLite returns the store in db, opened with any driver for SQLite. The database must be a file: one in memory, like a
// nil db, is an error when the store is initialized. The store does not close db.
func SQLite(db *sql.DB) *SQLiteStore {
	if db == nil {
		return &SQLiteStore{}
	}
	return &SQLiteStore{db: db, gate: sqlite.GateOf(db)}
}

// Initialize creates the table spillway_keys, or verifies the one that is there. See Store.
func (s *SQLiteStore) Initialize(ctx context.Context) error {
	if s == nil {
		return errors.New("idempotency: the *SQLiteStore is nil")
	}
	return explained(ctx, s.db, "SQLite", database.Of(database.SQLite, s.db).Upgrade(ctx, keytable.Table))
}

// Claim waits for the write lock and enters the key. See Store.
func (s *SQLiteStore) Claim(ctx context.Context, entry Entry) (_ Claim, err error) {
	if s == nil || s.db == nil {
		return nil, errors.New("sqlite: the store has no database")
	}
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
func (s *SQLiteStore) Lease(ctx context.Context, entry Entry, d time.Duration) (Lease, error) {
	if s == nil || s.db == nil {
		return nil, errors.New("sqlite: the store has no database")
	}
	return leased(ctx, keytable.LeasesInSQLite(s.db), entry, d)
}

// MarkPublished waits for the write lock too. See Store.
func (s *SQLiteStore) MarkPublished(ctx context.Context, entry Entry) error {
	if s == nil || s.db == nil {
		return errors.New("sqlite: the store has no database")
	}
	if err := s.gate.Lock(ctx); err != nil {
		return err
	}
	defer s.gate.Unlock()
	return sqlite.WhileBusy(ctx, func() error { return keytable.InSQLite.Published(ctx, s.db, entry.row()) })
}

// Ping returns an error where the database does not answer. A receiver asks when a connection was lost.
func (s *SQLiteStore) Ping(ctx context.Context) error {
	if s == nil || s.db == nil {
		return errors.New("sqlite: the store has no database")
	}
	return s.db.PingContext(ctx)
}

func (s *SQLiteStore) pool() *sql.DB { return s.db }

// same tells whether a claim of the one store would wait for a claim of the other.
func (s *SQLiteStore) same(other Store) bool {
	o, ok := other.(*SQLiteStore)
	return ok && o.db == s.db
}

// locks tells whether a claim keeps everybody else out of db: SQLite has one write lock.
func (s *SQLiteStore) locks(db *sql.DB) bool { return s.db == db }

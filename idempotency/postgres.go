package idempotency

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"github.com/watermill-spillway/spillway/internal/database"
	"github.com/watermill-spillway/spillway/internal/keytable"
	"github.com/watermill-spillway/spillway/internal/pipelined"
	"github.com/watermill-spillway/spillway/internal/sqlproxy"
)

// PostgresStore is a Store in a PostgreSQL database of version 11 or later, in the table spillway_keys, the first of that
// name on the search path. Its columns consumer and id hold the key as it is where a person can read it, else "sha256:" and
// the hash; the others are told of in the files of Schema. Handlers of different keys run at the same time.
//
// A claim holds a connection of the *sql.DB until it ends, also while it waits for another claim of its key. Let the pool
// have one for each message that is handled at the same time (SetMaxOpenConns), and some for handlers that use the
// *sql.DB beside Tx. The transaction is READ COMMITTED, so that a claim which waited sees what it waited for.
type PostgresStore struct {
	db        *sql.DB
	send      pipelined.Sender // or nil
	shadows   sqlproxy.Pool
	duplicate atomic.Int64 // when a key was there that came again, in Unix nanoseconds
}

// Postgres returns the store in db, opened with a driver whose errors tell their SQLSTATE, such as pgx/v5/stdlib and
// lib/pq. A nil db is an error when the store is initialized. The store does not close db.
func Postgres(db *sql.DB) *PostgresStore { return &PostgresStore{db: db} }

// Pipelined returns the store as it is on drivers that send several statements at once. It is for package pgxstore, whose
// Postgres is what to call.
func (s *PostgresStore) Pipelined(send pipelined.Sender) *PostgresStore {
	if s == nil {
		return nil
	}
	return &PostgresStore{db: s.db, send: send}
}

// Initialize creates the table spillway_keys, or verifies the one that is there, for which the role needs no right to
// create tables. The table must be permanent, and the database's encoding UTF8. See Store.
func (s *PostgresStore) Initialize(ctx context.Context) error {
	if s == nil {
		return errors.New("idempotency: the *PostgresStore is nil")
	}
	return explained(ctx, s.db, "Postgres", database.Of(database.Postgres, s.db).Upgrade(ctx, keytable.Table))
}

// Claim enters the key, and waits while another transaction holds the same one. See Store.
func (s *PostgresStore) Claim(ctx context.Context, entry Entry) (Claim, error) {
	if s == nil || s.db == nil {
		return nil, errors.New("postgres: the store has no database")
	}
	c := &postgresClaim{key: entry.Key, row: entry.row(), store: s}
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// Lease holds a connection only until it has leased the key. See Store.
func (s *PostgresStore) Lease(ctx context.Context, entry Entry, d time.Duration) (Lease, error) {
	if s == nil || s.db == nil {
		return nil, errors.New("postgres: the store has no database")
	}
	return leased(ctx, keytable.LeasesInPostgres(s.db), entry, d)
}

// MarkPublished is one statement on a connection of its own. See Store.
func (s *PostgresStore) MarkPublished(ctx context.Context, entry Entry) error {
	if s == nil || s.db == nil {
		return errors.New("postgres: the store has no database")
	}
	return keytable.InPostgres.Published(ctx, s.db, entry.row())
}

// Ping returns an error where the database does not answer. A receiver asks when a connection was lost.
func (s *PostgresStore) Ping(ctx context.Context) error {
	if s == nil || s.db == nil {
		return errors.New("postgres: the store has no database")
	}
	return s.db.PingContext(ctx)
}

func (s *PostgresStore) pool() *sql.DB { return s.db }

// same tells whether a claim of the one store would wait for a claim of the other.
func (s *PostgresStore) same(other Store) bool {
	o, ok := other.(*PostgresStore)
	return ok && o.db == s.db
}

// locks tells whether a claim keeps everybody else out of db: here only where it holds the pool's one connection.
func (s *PostgresStore) locks(db *sql.DB) bool {
	return s.db == db && db.Stats().MaxOpenConnections == 1
}

package idempotency

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"github.com/watermill-spillway/spillway/internal/keytable"
	"github.com/watermill-spillway/spillway/internal/pipelined"
	"github.com/watermill-spillway/spillway/internal/sqlproxy"
)

// postgresStore is a Store in a PostgreSQL database of version 11 or later, in the table spillway_keys, the first of that
// name on the search path. Its columns consumer and id hold the key as it is where a person can read it, else "sha256:" and
// the hash; the others are told of in the files of Schema. Handlers of different keys run at the same time.
//
// A claim holds a connection of the *sql.DB until it ends, also while it waits for another claim of its key. Let the pool
// have one for each message that is handled at the same time (SetMaxOpenConns), and some for handlers that use the
// *sql.DB beside Tx. The transaction is READ COMMITTED, so that a claim which waited sees what it waited for.
type postgresStore struct {
	base
	send      pipelined.Sender // or nil
	shadows   sqlproxy.Pool
	duplicate atomic.Int64 // when a key was there that came again, in Unix nanoseconds
}

// pipelinedStore is store with a driver that sends several statements at once. It is what package pgxstore asks for.
func pipelinedStore(store any, send pipelined.Sender) (any, bool) {
	s, ok := store.(*postgresStore)
	if !ok {
		return nil, false
	}
	return &postgresStore{base: s.base, send: send}, true
}

func init() { pipelined.Register(pipelinedStore) }

// Claim enters the key, and waits while another transaction holds the same one. See Store.
func (s *postgresStore) Claim(ctx context.Context, entry Entry) (Claim, error) {
	c := &postgresClaim{key: entry.Key, row: entry.row(), store: s}
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// Lease holds a connection only until it has leased the key. See Store.
func (s *postgresStore) Lease(ctx context.Context, entry Entry, d time.Duration) (Lease, error) {
	return leased(ctx, keytable.LeasesInPostgres(s.db), entry, d)
}

// MarkPublished is one statement on a connection of its own. See Store.
func (s *postgresStore) MarkPublished(ctx context.Context, entry Entry) error {
	return keytable.InPostgres.Published(ctx, s.db, entry.row())
}

// locks tells whether a claim keeps everybody else out of db: here only where it holds the pool's one connection.
func (s *postgresStore) locks(db *sql.DB) bool {
	return s.db == db && db.Stats().MaxOpenConnections == 1
}

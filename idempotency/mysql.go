package idempotency

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"github.com/watermill-spillway/spillway/internal/keytable"
	"github.com/watermill-spillway/spillway/internal/sqlproxy"
)

// mysqlStore is a Store in a MySQL database of version 8.0 or later, or a MariaDB one of 10.5 or later, in the table
// spillway_keys of the database that the connections use. Its columns consumer and id hold the key as it is where a person
// can read it, else "sha256:" and the hash; the others are told of in the files of Schema. Handlers of different keys run at
// the same time.
//
// A claim holds a connection of the *sql.DB until it ends, also while it waits for another claim of its key. Let the pool
// have one for each message that is handled at the same time (SetMaxOpenConns), and some for handlers that use the
// *sql.DB beside Tx. The transaction is READ COMMITTED, so that a claim which waited sees what it waited for; a server
// that writes a binary log must not have binlog_format=STATEMENT, which knows no such transaction. In
// MariaDB a claim costs no round trip beside those of the transaction itself, in MySQL two.
type mysqlStore struct {
	base
	plain   atomic.Bool // the server knows no compound statements
	shadows sqlproxy.Pool
}

// Claim enters the key, and waits while another transaction holds the same one, however long innodb_lock_wait_timeout is.
// When ctx ends first, the server goes on waiting for the rest of that time-out, and then enters nothing. See Store.
func (s *mysqlStore) Claim(ctx context.Context, entry Entry) (Claim, error) {
	c := &mysqlClaim{key: entry.Key, row: entry.row(), store: s}
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// Lease holds a connection only until it has leased the key. While a transaction holds the key it waits no longer than ten
// times innodb_lock_wait_timeout. See Store.
func (s *mysqlStore) Lease(ctx context.Context, entry Entry, d time.Duration) (Lease, error) {
	return leased(ctx, keytable.LeasesInMySQL(s.db), entry, d)
}

// MarkPublished is one statement on a connection of its own. See Store.
func (s *mysqlStore) MarkPublished(ctx context.Context, entry Entry) error {
	return keytable.InMySQL.Published(ctx, s.db, entry.row())
}

// locks tells whether a claim keeps everybody else out of db: here only where it holds the pool's one connection.
func (s *mysqlStore) locks(db *sql.DB) bool {
	return s.db == db && db.Stats().MaxOpenConnections == 1
}

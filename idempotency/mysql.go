package idempotency

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"github.com/watermill-spillway/spillway/internal/database"
	"github.com/watermill-spillway/spillway/internal/keytable"
	"github.com/watermill-spillway/spillway/internal/sqlproxy"
)

// MySQLStore is a Store in a MySQL database of version 8.0 or later, or a MariaDB one of 10.5 or later, in the table
// spillway_keys of the database that the connections use. Its columns consumer and id hold the key as it is where a person
// can read it, else "sha256:" and the hash; the others are told of in the files of Schema. Handlers of different keys run at
// the same time.
//
// A claim holds a connection of the *sql.DB until it ends, also while it waits for another claim of its key. Let the pool
// have one for each message that is handled at the same time (SetMaxOpenConns), and some for handlers that use the
// *sql.DB beside Tx. The transaction is READ COMMITTED, so that a claim which waited sees what it waited for; a server
// that writes a binary log must not have binlog_format=STATEMENT, which knows no such transaction. In
// MariaDB a claim costs no round trip beside those of the transaction itself, in MySQL two.
type MySQLStore struct {
	db      *sql.DB
	plain   atomic.Bool // the server knows no compound statements
	shadows sqlproxy.Pool
}

// MySQL returns the store in db, opened with github.com/go-sql-driver/mysql or a driver with errors of the same shape. Its
// settings do not matter, and of the session's variables only completion_type, which must be NO_CHAIN, as by default. A nil db is an error when the store is initialized. The store does not close db.
func MySQL(db *sql.DB) *MySQLStore { return &MySQLStore{db: db} }

// Initialize creates the table spillway_keys, or verifies the one that is there, for which the user needs no right to
// create tables. The table's engine must be InnoDB, and its columns binary. See Store.
func (s *MySQLStore) Initialize(ctx context.Context) error {
	if s == nil {
		return errors.New("idempotency: the *MySQLStore is nil")
	}
	return explained(ctx, s.db, "MySQL", database.Of(database.MySQL, s.db).Upgrade(ctx, keytable.Table))
}

// Claim enters the key, and waits while another transaction holds the same one, however long innodb_lock_wait_timeout is.
// When ctx ends first, the server goes on waiting for the rest of that time-out, and then enters nothing. See Store.
func (s *MySQLStore) Claim(ctx context.Context, entry Entry) (Claim, error) {
	if s == nil || s.db == nil {
		return nil, errors.New("mysql: the store has no database")
	}
	c := &mysqlClaim{key: entry.Key, row: entry.row(), store: s}
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// Lease holds a connection only until it has leased the key. While a transaction holds the key it waits no longer than ten
// times innodb_lock_wait_timeout. See Store.
func (s *MySQLStore) Lease(ctx context.Context, entry Entry, d time.Duration) (Lease, error) {
	if s == nil || s.db == nil {
		return nil, errors.New("mysql: the store has no database")
	}
	return leased(ctx, keytable.LeasesInMySQL(s.db), entry, d)
}

// MarkPublished is one statement on a connection of its own. See Store.
func (s *MySQLStore) MarkPublished(ctx context.Context, entry Entry) error {
	if s == nil || s.db == nil {
		return errors.New("mysql: the store has no database")
	}
	return keytable.InMySQL.Published(ctx, s.db, entry.row())
}

// Ping returns an error where the database does not answer. A receiver asks when a connection was lost.
func (s *MySQLStore) Ping(ctx context.Context) error {
	if s == nil || s.db == nil {
		return errors.New("mysql: the store has no database")
	}
	return s.db.PingContext(ctx)
}

func (s *MySQLStore) pool() *sql.DB { return s.db }

// same tells whether a claim of the one store would wait for a claim of the other.
func (s *MySQLStore) same(other Store) bool {
	o, ok := other.(*MySQLStore)
	return ok && o.db == s.db
}

// locks tells whether a claim keeps everybody else out of db: here only where it holds the pool's one connection.
func (s *MySQLStore) locks(db *sql.DB) bool {
	return s.db == db && db.Stats().MaxOpenConnections == 1
}

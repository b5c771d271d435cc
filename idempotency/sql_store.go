package idempotency

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/idempotency/internal/claims"
	"github.com/watermill-spillway/spillway/internal/hold/outage"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
)

// NewStore returns the store of keys in db: PostgreSQL 11, MySQL 8.0, MariaDB 10.6 or SQLite 3.35, or a later version
// of each. It asks db which one it is, creates or upgrades the table spillway_keys, and verifies it, within 30 seconds.
// A role without the right to create tables can use a table that exists. A database that cannot keep the promises of a
// Store is an error. The store does not close db.
//
// The service names whose handlers apply the messages. It is part of every key, as in "shop/billing" for the handler
// billing. Without it, two services with a handler of the same name would absorb each other's messages. It has at most
// 100 letters, digits, dots, underscores and hyphens. It is required on a database server, which services share; for a
// SQLite file it may be empty. After a rename of the service, messages that were applied before are applied again if
// they come again. See ReceiverConfig.Consumer for a rename without that.
//
// PostgreSQL: use a driver whose errors have a SQLSTATE, such as pgx/v5/stdlib or lib/pq. The database's encoding must
// be UTF8. MySQL and MariaDB: use github.com/go-sql-driver/mysql. The session's completion_type must be NO_CHAIN, the
// default; a server with a binary log must not have binlog_format=STATEMENT. NewStore enters a key and takes it back,
// so that a database that refuses keys is an error now. SQLite: use a file, with any driver. If
// several processes share the file, open it in WAL mode and with a busy time-out.
func NewStore(ctx context.Context, db *sql.DB, service string) (Store, error) {
	on, err := database.Open(ctx, "idempotency: NewStore", db, service, keytable.Table)
	if err != nil {
		return nil, err
	}
	store := &sqlStore{on: on, service: service, begin: claims.In(on)}
	if err := store.try(ctx); err != nil {
		return nil, fmt.Errorf("idempotency: NewStore: enter a key, to try it: %w", err)
	}
	return store, nil
}

// tryTimeout bounds how long NewStore tries to enter a key.
const tryTimeout = 5 * time.Second

// try enters a key as a message does, and takes it back: what keeps keys from being written shows at the start. That
// others are in the way, or that the database takes long, says nothing. SQLite, whose one lock a handler of another
// process may have, says it to the first message.
func (s *sqlStore) try(ctx context.Context) error {
	if s.on.Kind() == database.SQLite {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	claim, err := s.Claim(ctx, Entry{Key: Key{Consumer: s.Consumer("spillway.start"), ID: rand.Text()}})
	if err == nil {
		_, err = claim.Tx().ExecContext(ctx, touch)
		_ = claim.Release()
	}
	if !outage.Refused(err) {
		return nil
	}
	if todo := remedy(err); todo != "" {
		err = fmt.Errorf("%w (%s)", err, todo)
	}
	return err
}

// touch changes no row, and needs the right to change them.
const touch = `UPDATE spillway_keys SET outputs = NULL WHERE consumer IS NULL`

// sqlStore is the store of NewStore.
type sqlStore struct {
	on      *database.Database
	service string
	begin   claims.Begin
}

var _ keytable.Keeper = (*sqlStore)(nil)

// Consumer returns the identity of a handler's keys. See Store.
func (s *sqlStore) Consumer(handler string) string {
	return s.Keys().Consumer(handler)
}

// These have the methods of a Claim and a Lease, except that Recorded must return a Record.
type (
	sqlClaim struct{ claims.Claim }
	sqlLease struct{ *keytable.Lease }
)

func (c sqlClaim) Recorded() *Record { return (*Record)(c.Claim.Recorded()) }
func (l sqlLease) Recorded() *Record { return (*Record)(l.Lease.Recorded()) }

// unwrap is for package pgxstore.
func (c sqlClaim) unwrap() any { return c.Claim }

// Claim enters the key in a transaction of its own. See Store.
func (s *sqlStore) Claim(ctx context.Context, entry Entry) (Claim, error) {
	c, err := s.begin(ctx, s.pool(), entry.row())
	if err != nil {
		return nil, err
	}
	return sqlClaim{c}, nil
}

// Lease holds a connection only until it has leased the key. See Store.
func (s *sqlStore) Lease(ctx context.Context, entry Entry, d time.Duration) (Lease, error) {
	l, err := keytable.LeaseIn(ctx, s.on, entry.row(), d)
	if err != nil {
		return nil, err
	}
	return sqlLease{l}, nil
}

// MarkPublished is one statement on a connection of its own. See Store.
func (s *sqlStore) MarkPublished(ctx context.Context, entry Entry) error {
	return keytable.Published(ctx, s.on, entry.row())
}

// Purge is one short transaction on a connection of its own. See Store.
func (s *sqlStore) Purge(ctx context.Context, before time.Time, limit int) (int, error) {
	if limit <= 0 {
		return 0, fmt.Errorf("%s: purge keys: the limit is %d, and must be positive", s.on.Kind(), limit)
	}
	return keytable.Purge(ctx, s.on, before.UnixMilli(), limit)
}

// Keys is for those who need more of the table than a receiver does: packages erasure and sequence.
func (s *sqlStore) Keys() keytable.Keys { return keytable.Keys{On: s.on, Service: s.service} }

// Ping returns an error if the database does not answer. A receiver asks when a connection was lost.
func (s *sqlStore) Ping(ctx context.Context) error { return s.on.DB().PingContext(ctx) }

func (s *sqlStore) pool() *sql.DB { return s.on.DB() }

// claimsInTurn reports whether claims wait for each other in the process, whatever their keys: SQLite has one write
// lock.
func claimsInTurn(store Store) bool {
	s, ok := store.(*sqlStore)
	return ok && s.on.Kind() == database.SQLite
}

// same reports whether a claim of the one store would wait for a claim of the other.
func (s *sqlStore) same(other Store) bool {
	o, ok := other.(*sqlStore)
	return ok && o.pool() == s.pool()
}

// locks reports whether a claim keeps all others out of db: always on SQLite, elsewhere if it holds the pool's one
// connection.
func (s *sqlStore) locks(db *sql.DB) bool {
	return s.pool() == db && (s.on.Kind() == database.SQLite || db.Stats().MaxOpenConnections == 1)
}

// ClaimsBy returns the store with claims of a package that knows a driver, made of the store's own, or false if its
// database is not PostgreSQL. It is for package pgxstore.
func (s *sqlStore) ClaimsBy(through func(claims.Begin) claims.Begin) (store any, ok bool) {
	if s.on.Kind() != database.Postgres {
		return nil, false
	}
	return &sqlStore{on: s.on, service: s.service, begin: through(s.begin)}, true
}

// pool looks after the connections of a store: handlers that wait for one that other handlers hold wait for ever.
type pool struct {
	db       *sql.DB // nil is none to look after
	logger   watermill.LoggerAdapter
	notified atomic.Bool
}

// full reports whether every connection that the pool may have is in use.
func (p *pool) full() bool {
	if p.db == nil {
		return false
	}
	stats := p.db.Stats()
	return stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections
}

var errPoolUsedUp = errors.New("idempotency: the pool of the store's *sql.DB is used up: each claim holds a " +
	"connection while its handler runs, and a handler that uses the *sql.DB takes another one; raise SetMaxOpenConns to " +
	"the number of messages handled at the same time, times the connections that each needs, or let handlers write through Tx")

// tell logs once that the pool is used up.
func (p *pool) tell(waited time.Duration) {
	if p.notified.Swap(true) {
		return
	}
	stats := p.db.Stats()
	eventPoolUsedUp.Write(p.logger, errPoolUsedUp, logging.Fields{
		"max_open_connections": stats.MaxOpenConnections, "in_use": stats.InUse,
		"waited": waited.String(),
	})
}

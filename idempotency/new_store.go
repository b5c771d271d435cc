package idempotency

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/watermill-spillway/spillway/internal/database"
	"github.com/watermill-spillway/spillway/internal/database/sqlite"
	"github.com/watermill-spillway/spillway/internal/keytable"
)

// StoreConfig configures a store of keys in a SQL database.
type StoreConfig struct {
	// Service names the service whose handlers apply the messages. It is part of every key, as in "shop/billing" for the
	// handler billing: two services with a handler of the same name would absorb each other's messages. Required on a
	// database server, which services share; optional for a SQLite file. At most 100 letters, digits, dots, underscores and
	// hyphens.
	//
	// After a rename of the service, messages that were applied before are applied again if they come again. See
	// ReceiverConfig.Consumer for a rename without that.
	Service string
}

// NewStore returns the store of keys in db: PostgreSQL 11, MySQL 8.0, MariaDB 10.6 or SQLite 3.35, or a later version of
// each. It asks db which one it is, creates or upgrades the table spillway_keys, and verifies it, within 30 seconds. A
// role without the right to create tables can use a table that exists. A database that cannot keep the promises of a Store
// is an error. The store does not close db.
//
// PostgreSQL: use a driver whose errors have a SQLSTATE, such as pgx/v5/stdlib or lib/pq. The database's encoding must be
// UTF8. MySQL and MariaDB: use github.com/go-sql-driver/mysql. The session's completion_type must be NO_CHAIN, the default;
// a server with a binary log must not have binlog_format=STATEMENT. SQLite: use a file, with any driver. If several
// processes share the file, open it in WAL mode and with a busy time-out.
func NewStore(ctx context.Context, db *sql.DB, config StoreConfig) (Store, error) {
	ctx, cancel := context.WithTimeout(ctx, database.StartTimeout)
	defer cancel()
	on, err := database.Detect(ctx, db)
	if err == nil {
		err = database.ValidateService(on.Kind(), config.Service)
	}
	if err == nil {
		err = on.Upgrade(ctx, keytable.Table)
	}
	if err != nil {
		return nil, fmt.Errorf("idempotency: NewStore: %w", err)
	}
	base := base{db: db, service: config.Service}
	switch on.Kind() {
	case database.Postgres:
		return &postgresStore{base: base}, nil
	case database.MySQL:
		return &mysqlStore{base: base}, nil
	default:
		return &sqliteStore{base: base, gate: sqlite.GateOf(db)}, nil
	}
}

// base is what the stores of all databases have in common.
type base struct {
	db      *sql.DB
	service string
}

// Consumer returns the identity of a handler's keys. See Store.
func (s *base) Consumer(handler string) string {
	if s.service == "" && !strings.Contains(handler, "/") {
		return handler
	}
	return s.service + "/" + handler
}

// Ping returns an error if the database does not answer. A receiver asks when a connection was lost.
func (s *base) Ping(ctx context.Context) error { return s.db.PingContext(ctx) }

func (s *base) pool() *sql.DB { return s.db }

// same reports whether a claim of the one store would wait for a claim of the other.
func (s *base) same(other Store) bool {
	o, ok := other.(interface{ pool() *sql.DB })
	return ok && o.pool() == s.db
}

package delay

import (
	"context"
	"database/sql"

	"github.com/watermill-spillway/spillway/internal/chain/delays"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/sqlstore/delayed"
	"github.com/watermill-spillway/spillway/internal/sqlstore/delayed/waiting"
)

// Store keeps messages in the table spillway_delayed until they are due. Give it to stages.Config.Store. It is safe for
// concurrent use, by any number of processes.
type Store struct {
	handle
	kept
}

type (
	handle = hidden.Handle[*waiting.Table]
	kept   = delays.Kept
)

// NewStore returns a Store on a PostgreSQL, MySQL, MariaDB or SQLite database: it asks db which one. It creates its
// table, or upgrades the one that is there, and checks that it may take rows, for at most 30 seconds. The Store does
// not close db.
//
// The service names whose messages these are. Relays publish what was put into a Store of the same service, and nothing
// else. It has at most 100 letters, digits, dots, underscores and hyphens. It is required on a database server, where
// other services may be too: their publishers may lead to other brokers. On SQLite it may be empty.
//
// On PostgreSQL the table is the first of its name on the search path. On MySQL and MariaDB a binary log must not have
// binlog_format=STATEMENT. On SQLite the database must be a file, and WAL mode is advisable. Writers of a process come
// one after the other there, so a message that fails inside an idempotent receiver's claim on the same *sql.DB cannot
// be stored, and delays relays. Each lease writes its messages anew on SQLite: keep messages of megabytes elsewhere.
func NewStore(ctx context.Context, db *sql.DB, service string) (*Store, error) {
	in, err := delayed.NewStore(ctx, db, service)
	if err != nil {
		return nil, err
	}
	return &Store{hidden.By(in.Table), delays.KeptIn(in)}, nil
}

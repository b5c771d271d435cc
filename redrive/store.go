package redrive

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/database"
)

// maxWrite bounds every write and every read, the wait for others included.
const maxWrite = 30 * time.Second

// StoreConfig configures a Store.
type StoreConfig struct {
	// DB is a SQLite database in a file, or a PostgreSQL, MySQL (8.0.13 or later) or MariaDB (10.6 or later) database, opened
	// with whatever driver: the store asks it which. For SQLite WAL mode is advisable: without it readers and writers wait
	// for each other. On PostgreSQL the table is the first of its name on the search path, on MySQL that of the database
	// which the connections use, and a binary log must not have binlog_format=STATEMENT. A connection that waits inside of a
	// transaction of its own, where DB has only that one, waits in vain.
	DB *sql.DB
	// Service names whose letters these are, in at most 255 bytes, where several services, or brokers, have one table: two
	// brokers may each have a topic "orders", and a letter must go to its own. A Store shows, counts and brings back the
	// letters that were published to a Store of the same Service, and no others. Default: none, which is a service too.
	Service string
	// MaxRead is how many bytes of metadata and payload one List, Take or batch of a Drain reads into memory at most, or one
	// letter if it alone has more. Default: DefaultMaxRead, 32 MiB.
	MaxRead int
}

const maxService = 255

// DefaultMaxRead is StoreConfig.MaxRead where nothing else is configured.
const DefaultMaxRead = 32 << 20

// Store keeps dead letters in the table spillway_dead_letters of a database, until they are brought back or discarded. It
// is a message.Publisher and a poison.Initializer, so it can be the Publisher, or a fallback, of a poison.Queue. It is safe
// for concurrent use, by several processes too, and has no goroutine of its own.
type Store struct {
	db      *sql.DB
	dialect *dialect
	service string
	maxRead int // in bytes
	limit   int // in bytes of a letter, or 0
	closed  atomic.Bool
}

// ErrClosed is the error of publishing to a Store after its Close.
var ErrClosed = errors.New("redrive: the dead-letter store is closed; a router closes the publisher of each of its handlers: " +
	"give handlers a publisher of their own")

// NewStore returns a Store and makes its table, within 30 seconds. A table of an earlier version is upgraded with its rows,
// forward only; Schema has the statements. The causes of old letters are computed for 5 seconds at most, and Groups computes
// the rest. A nil or in-memory database is an error, and so is one
// that is of no kind which StoreConfig.DB names, and a table of that name that is not a Store's.
func NewStore(config StoreConfig) (*Store, error) {
	if config.DB == nil {
		return nil, errors.New("redrive: StoreConfig.DB is nil: give an open SQLite, PostgreSQL, MySQL or MariaDB database")
	}
	if len(config.Service) > maxService {
		return nil, fmt.Errorf("redrive: StoreConfig.Service has %d bytes, at most %d are possible: give a shorter name", len(config.Service), maxService)
	}
	if config.MaxRead < 0 {
		return nil, fmt.Errorf("redrive: StoreConfig.MaxRead is %d bytes: it must not be negative; 0 means %d", config.MaxRead, DefaultMaxRead)
	}
	if config.MaxRead == 0 {
		config.MaxRead = DefaultMaxRead
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxWrite)
	defer cancel()
	db, err := database.Detect(ctx, config.DB)
	if err == nil {
		err = db.Upgrade(ctx, table)
	}
	var d *dialect
	limit := 0
	if err == nil {
		d = dialects[db.Kind()]
	}
	if err == nil && d.limit != nil {
		limit, err = d.limit(ctx, config.DB)
	}
	if err != nil {
		return nil, fmt.Errorf("redrive: StoreConfig.DB: %w", err)
	}
	s := &Store{db: config.DB, dialect: d, service: config.Service, maxRead: config.MaxRead, limit: limit}
	s.beginCauses(ctx)
	return s, nil
}

// usable returns an error for arguments with which there is nothing to do.
func (s *Store) usable(ctx context.Context) error {
	if s == nil {
		return errNilStore
	}
	if ctx == nil {
		return errors.New("redrive: the context is nil: give context.Background() where there is no other")
	}
	return nil
}

var errNilStore = errors.New("redrive: the Store is nil: look at the error of NewStore")

// write runs work in a transaction. It may run work several times, when other writers are in the way; what a failed run
// did is undone.
func (s *Store) write(ctx context.Context, work func(*sql.Tx) error) error {
	if claim := chain.ClaimOf(ctx); claim != nil && claim.Locks(s.db) {
		return errWithin
	}
	ctx, cancel := context.WithTimeout(ctx, maxWrite) // a handler that calls without its message's context waits for itself
	defer cancel()
	return s.dialect.write(ctx, s.db, work)
}

// writeLetters is write for n letters at once.
func (s *Store) writeLetters(ctx context.Context, n int, work func(*sql.Tx) error) error {
	return s.write(ctx, func(tx *sql.Tx) error {
		if n > 1 && s.dialect.several != "" {
			if _, err := tx.ExecContext(ctx, s.dialect.several); err != nil {
				return err
			}
		}
		return work(tx)
	})
}

func (s *Store) exec(ctx context.Context, tx *sql.Tx, statement string, args ...any) (sql.Result, error) {
	return tx.ExecContext(ctx, s.dialect.say(statement), args...)
}

var errWithin = errors.New("the message's own transaction holds the database, and would be waited for in vain: " +
	"use the store outside of handlers with an idempotent receiver on the same database, and return an error from the handler " +
	"instead of setting its message aside within")

// read queries rows and scans each. A writer of another process may be in the way: then it starts again after reset.
func (s *Store) read(ctx context.Context, reset func(), scan func(*sql.Rows) error, query string, args ...any) error {
	if claim := chain.ClaimOf(ctx); claim != nil && claim.Locks(s.db) && s.db.Stats().MaxOpenConnections == 1 {
		return errWithin
	}
	ctx, cancel := context.WithTimeout(ctx, maxWrite)
	defer cancel()
	return s.dialect.patience(ctx, func() error {
		reset()
		rows, err := s.db.QueryContext(ctx, s.dialect.say(query), args...)
		if err != nil {
			return err
		}
		return scanAll(rows, scan)
	})
}

func scanAll(rows *sql.Rows, scan func(*sql.Rows) error) (err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

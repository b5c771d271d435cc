package letters

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/sqlstore/batcher"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
	"github.com/watermill-spillway/spillway/seal"
)

// maxWrite bounds every write and every read, the wait for others included.
const maxWrite = 30 * time.Second

// maxRead is the largest number of bytes of metadata and payload that is read into memory at once. One letter is read
// even if it is larger.
const maxRead = 32 << 20

// Store keeps dead letters in tables of a database, spillway_dead_letters and those beside it, until they are purged.
// It is a message.Publisher and a poison.Initializer, so that a poison.Queue can publish into it. It is safe for
// concurrent use, also by several processes. It has a goroutine only while letters of several callers go into one
// statement.
type Store struct {
	handle
	db         *database.Database
	statements statements
	service    string
	maxRead    int // in bytes
	closed     atomic.Bool
	slots      *slots
	node       string
	seal       *seal.Sealer
	known      knownCauses
	batcher    *batcher.Batcher[*record]
	manyFresh  []string // by the logarithm of the number of letters
	settling   map[Status]string
	askAt      atomic.Int64 // when the Store asks for the numbers of events next, in Unix nanoseconds
	compareAt  atomic.Int64 // when the numbers are compared with the letters next, in Unix nanoseconds
	// retention is the shortest of letters that wait, in nanoseconds, if a rule of this process has one.
	retention atomic.Int64
}

// ErrClosed is the error of Publish after Close.
var ErrClosed = errors.New("letters: the Store is closed; a router closes the publisher of each of its handlers: " +
	"give handlers a publisher of their own")

// Config configures a Store.
type Config struct {
	// Service names the service whose letters these are: letters, digits and ". _ -", at most 100 bytes. Services may
	// share a table. A Store shows, counts and takes only letters that a Store of the same Service stored. If one
	// service reads two brokers, give each broker a Service: both may have a topic "orders", and a letter must return
	// to its own broker. Required on a database server, where other services may use the table.
	Service string
	// Seal seals letters that arrive unsealed, and opens letters for Open, for drains and for campaigns. While its Keys
	// fail, Publish stores nothing that is not sealed already. Letters that are in the table unsealed stay readable:
	// Reseal seals them. Default: none, and letters are readable.
	Seal *seal.Sealer
}

// NewStore returns a Store.
//
// NewStore asks db which database it is, and creates or upgrades the table, within 30 seconds. An
// upgrade keeps the rows and is never undone. The causes of old letters are computed for at most 5 seconds; Groups
// computes the rest.
//
// db is a SQLite file, PostgreSQL 11 or later, MySQL 8.0.13 or later, or MariaDB 10.6 or later, with any driver.
// NewStore fails for any other database, for SQLite in memory, and for a table of that name with other columns.
//   - On SQLite, WAL mode is advisable: without it readers and writers wait for each other.
//   - On PostgreSQL the table is the first of its name on the search path.
//   - On MySQL the table is in the database of the connections. Its binary log must not have binlog_format=STATEMENT.
//   - If db has only one connection, a caller that holds a transaction on it must not call the Store.
func NewStore(ctx context.Context, db *sql.DB, config Config) (*Store, error) {
	known, err := database.Open(ctx, "letters: NewStore", db, config.Service, table, events, causes, notes, counts,
		bodies, leases)
	if err != nil {
		return nil, err
	}
	s := &Store{db: known, statements: statementsOf[known.Kind()], service: config.Service, maxRead: maxRead,
		slots: newSlots(), node: thisNode(), seal: config.Seal}
	s.statements.insert, s.statements.count = known.Statement(s.statements.insert), known.Statement(s.statements.count)
	if known.Kind() == database.Postgres {
		s.manyFresh, s.settling = manyFreshStatements(known.Statement), settleStatements()
	}
	s.batcher, s.handle = s.newBatcher(), hidden.By(inner{s})
	return s, nil
}

// thisNode names the process as the holder of leases: the host and the process's id, cut to what the table takes.
func thisNode() string {
	host, _ := os.Hostname() // without a name there is the process's id
	return boundedtext.Text(fmt.Sprintf("%s/%d", host, os.Getpid()), maxID)
}

// usable returns an error for arguments with which there is nothing to do.
func (s *Store) usable(ctx context.Context) error {
	if s == nil {
		return errNilStore
	}
	if ctx == nil {
		return errNilContext
	}
	return nil
}

var (
	errNilStore   = errors.New("letters: the Store is nil: check the error of NewStore")
	errNilContext = errors.New("letters: the context is nil: use context.Background() if there is no other")
)

// write runs work in a transaction, and again if other writers were in the way. What a failed run did is undone.
func (s *Store) write(ctx context.Context, work func(*sql.Tx) error) error {
	if s.db.Held(ctx) {
		return errHeld
	}
	// a handler that calls without its message's context waits for itself
	ctx, cancel := context.WithTimeout(ctx, maxWrite)
	defer cancel()
	return s.own(s.db.Write(ctx, work))
}

// own tells an error about the numbers of our own rows from one about a letter. Bodies have the numbers of letters.
func (s *Store) own(err error) error {
	err = s.db.OwnKey(err, table, events, bodies)
	if own := (*database.OwnKeyError)(nil); errors.As(err, &own) && own.Table == bodies.Name {
		own.Remedy = `SELECT setval(pg_get_serial_sequence('spillway_dead_letters', 'seq'), (SELECT MAX(body) FROM spillway_letter_bodies))`
	}
	return err
}

// Numbered returns an error with the remedy if the database would give new letters or events the numbers of rows
// that are there, as after a restore of data alone.
func (s inner) Numbered(ctx context.Context) error {
	for _, t := range []schema.Table{table, events} {
		if err := s.db.OwnKeyBehind(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// numberedEvery is how often a Store asks whether what it is about to do can be recorded.
const numberedEvery = time.Minute

// numbered returns an error if no event could be recorded of letters that are about to be published.
func (s *Store) numbered(ctx context.Context) error {
	if time.Now().UnixNano() < s.askAt.Load() {
		return nil
	}
	if err := s.db.OwnKeyBehind(ctx, events); err != nil {
		return err
	}
	s.askAt.Store(time.Now().Add(numberedEvery).UnixNano())
	return nil
}

// writeLetters is write for n letters at once. What work notes in the tally is counted at the end of the transaction.
func (s *Store) writeLetters(ctx context.Context, n int, work func(*sql.Tx, tally) error) error {
	slot, requeue := s.slots.take()
	defer requeue()
	return s.write(ctx, func(tx *sql.Tx) error {
		if n > 1 && s.statements.several != "" {
			if _, err := tx.ExecContext(ctx, s.statements.several); err != nil {
				return err
			}
		}
		t := make(tally)
		if err := work(tx, t); err != nil {
			return err
		}
		return s.count(ctx, tx, slot, t)
	})
}

func (s *Store) exec(ctx context.Context, tx *sql.Tx, statement string, args ...any) (sql.Result, error) {
	return tx.ExecContext(ctx, s.db.Statement(statement), args...)
}

// read queries rows and scans each. A writer of another process may be in the way: then it starts again after reset.
func (s *Store) read(ctx context.Context, reset func(), scan func(*sql.Rows) error, query string, args ...any) error {
	return s.readBy(ctx, s.db.Query, reset, scan, query, args)
}

// readPlanned is read for what is chosen from the letters of all services.
func (s *Store) readPlanned(ctx context.Context, reset func(), scan func(*sql.Rows) error, query string,
	args ...any) error {
	return s.readBy(ctx, s.db.QueryPlanned, reset, scan, query, args)
}

type querying func(ctx context.Context, reset func(), scan func(*sql.Rows) error, query string, args ...any) error

func (s *Store) readBy(ctx context.Context, run querying, reset func(), scan func(*sql.Rows) error, query string,
	args []any) error {
	if s.db.Held(ctx) && s.db.DB().Stats().MaxOpenConnections == 1 {
		return errHeld
	}
	ctx, cancel := context.WithTimeout(ctx, maxWrite)
	defer cancel()
	return run(ctx, reset, scan, s.db.Statement(query), args...)
}

var errHeld = errors.New("the message's own transaction holds the database, so that the Store would wait forever: " +
	"use the Store outside of handlers with an idempotent receiver on the same database; return an error from the " +
	"handler instead")

type handle = hidden.Handle[inner]

// inner is a Store with the methods that only Spillway's own packages call.
type inner struct{ *Store }

// DB is the database that the Store is on, for tables that stand beside its own.
func (s inner) DB() *sql.DB { return s.db.DB() }

// Service is the service of the Store.
func (s inner) Service() string { return s.service }

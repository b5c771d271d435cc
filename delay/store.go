package delay

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/database"
	"github.com/watermill-spillway/spillway/poison"
)

// MaxDelay is the longest delay, about ten years: more than anybody means.
const MaxDelay = 10 * 366 * 24 * time.Hour

const (
	// maxWrite bounds every statement, the wait for others included.
	maxWrite = 30 * time.Second
	// maxTopic is how many bytes a topic's name may have: MySQL groups no longer ones without a file.
	maxTopic = 1024
	// maxService is how many bytes a service's name may have.
	maxService = 255
	// maxWaiting is how many topics Waiting tells of.
	maxWaiting = 1000
)

// Store keeps messages in the table spillway_delayed until they are due. Relays publish them. It is safe for concurrent
// use, by any number of processes, and has no goroutine of its own.
type Store struct {
	db *sql.DB
	*dialect
	say     statements
	service string
	bells   bells        // of relays in this process
	atMost  atomic.Int64 // what dialect.limit said, or 0
}

// Postgres returns the store in a PostgreSQL database of version 11 or later, opened with a driver whose errors tell their
// SQLSTATE, such as pgx/v5/stdlib and lib/pq. The table is the first of its name on the search path. None of the stores
// closes db; a nil db is an error of Initialize and Put.
func Postgres(db *sql.DB) *Store { return newStore(db, &postgresDialect) }

// MySQL returns the store in a MySQL database of version 8.0 or later, or a MariaDB one of 10.6 or later, opened with
// github.com/go-sql-driver/mysql or a driver with errors of the same shape. A binary log must not have
// binlog_format=STATEMENT.
func MySQL(db *sql.DB) *Store { return newStore(db, &mysqlDialect) }

// SQLite returns the store in a SQLite database of version 3.35 or later, opened with any driver. The database must be a
// file; WAL mode is advisable. Writers of the process stand in a row there, with the claims of an idempotent receiver on
// the same *sql.DB: a handler inside of such a claim cannot Put, and keeps relays waiting. Each lease writes its messages
// anew: those of megabytes are better kept elsewhere.
func SQLite(db *sql.DB) *Store { return newStore(db, &sqliteDialect) }

func newStore(db *sql.DB, d *dialect) *Store { return &Store{db: db, dialect: d, say: d.statements()} }

// For returns the store of a service in the same table: its relays publish what was put into it, and nothing else. Without
// it all processes on a database share what waits there, and each relay publishes it all, so services whose publishers lead
// to different brokers need a name each. A name has 255 bytes at most.
func (s *Store) For(service string) *Store {
	if s == nil {
		return nil
	}
	of := newStore(s.db, s.dialect)
	of.service = service
	return of
}

var (
	errNoDB      = errors.New("delay: the *sql.DB of the store is nil: give an open database")
	errNoContext = errors.New("delay: the context is nil: give context.Background() if there is no other")
	errNoRelay   = errors.New("delay: the *Relay is nil: make it with NewRelay")
)

// Initialize creates the table, or verifies the one that is there, and does not touch it: the role then needs no right to
// create any. Many processes may do so at once. NewRelay does it too; a process that only puts has to do it once itself,
// or have a table made by another. A nil or in-memory database is an error, and so is a table of that name which is not a
// Store's.
func (s *Store) Initialize(ctx context.Context) error {
	if s == nil || s.db == nil {
		return errNoDB
	}
	if ctx == nil {
		return errNoContext
	}
	if len(s.service) > maxService {
		return fmt.Errorf("delay: For: the service's name has %d bytes, and may have %d", len(s.service), maxService)
	}
	if err := database.Of(s.kind, s.db).Upgrade(ctx, table); err != nil {
		return fmt.Errorf("delay: initialize the store: %w", err)
	}
	return s.askLimit(ctx)
}

// Put keeps msg until after has passed on the database's clock, from when the statement is run; then a Relay publishes it to
// topic. When Put returns nil the message is durable; inside of a transaction that consumes a message, and that ctx carries
// (see the package's documentation), it is when that commits. Put takes 30 seconds at most, and msg remains the caller's.
//
// An after of 0 or less is due at once, and one of more than about ten years is an error: it was meant in another unit. So
// is a topic without a name, or with one of more than 1,024 bytes. A message that is too large for the database is an error
// that wraps poison.ErrTooLarge. Inside of a receiver's claim on the same *sql.DB of SQLite Put is an error, because it would
// wait for itself; through another *sql.DB on the same file it does wait, for 30 seconds. After an error of the connection
// the message may be there all the same.
func (s *Store) Put(ctx context.Context, topic string, msg *message.Message, after time.Duration) error {
	if s == nil || s.db == nil {
		return errNoDB
	}
	if ctx == nil {
		return errNoContext
	}
	if err := checkPut(topic, msg, after); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, maxWrite)
	defer cancel()
	after = max(0, after)
	if err := s.put(ctx, newRecord(s.service, topic, msg), after); err != nil {
		return fmt.Errorf("delay: put message %q for %q: %w", boundedtext.Text(msg.UUID, logged), boundedtext.Text(topic, logged), err)
	}
	// Where the transaction has not committed, a relay that looks in time may still find it.
	s.bells.ring(time.Now().Add(after + s.tick))
	return nil
}

func checkPut(topic string, msg *message.Message, after time.Duration) error {
	switch {
	case msg == nil:
		return errors.New("delay: put: the message is nil")
	case topic == "" || len(topic) > maxTopic:
		return fmt.Errorf("delay: put message %q: the topic's name has %d bytes, and must have 1 to %d", boundedtext.Text(msg.UUID, logged), len(topic), maxTopic)
	case after > MaxDelay:
		return fmt.Errorf("delay: put message %q: a delay of %s is longer than %s: is it meant in another unit?", boundedtext.Text(msg.UUID, logged), after, MaxDelay)
	}
	return nil
}

func (s *Store) put(ctx context.Context, r record, after time.Duration) error {
	if err := s.fits(ctx, r.size()); err != nil {
		return err
	}
	args := r.args(after + s.tick)
	joined, err := chain.WriteJoined(ctx, s.db, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, s.say.put, args...)
		return err
	})
	if !joined {
		err = s.putAlone(ctx, args)
	}
	if err != nil && (s.tooLarge(err) || s.hungUp(err, r.size())) {
		err = fmt.Errorf("%w: %d bytes: %w", poison.ErrTooLarge, r.size(), err)
	}
	return err
}

// small is what a message may have without asking whether it fits.
const small = 512 << 10

func (s *Store) fits(ctx context.Context, size int) error {
	if s.limit == nil || size <= small {
		return nil
	}
	if s.atMost.Load() == 0 {
		if err := s.askLimit(ctx); err != nil {
			return err
		}
	}
	if most := s.atMost.Load(); int64(size) > most {
		return fmt.Errorf("%w: %d bytes, where the server takes %d", poison.ErrTooLarge, size, most)
	}
	return nil
}

// hungUp reports whether an error is as that of a server which hung up on a message that takes more bytes in the statement:
// a driver that writes the values into the statement may double them by escaping.
func (s *Store) hungUp(err error, size int) bool {
	most := s.atMost.Load()
	return most > 0 && 2*int64(size) > most && !s.answered(err) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

func (s *Store) askLimit(ctx context.Context) error {
	if s.limit == nil {
		return nil
	}
	limit, err := s.limit(ctx, s.db)
	if err != nil {
		return fmt.Errorf("delay: %w", err)
	}
	s.atMost.Store(int64(limit))
	return nil
}

func (s *Store) putAlone(ctx context.Context, args []any) error {
	if s.within(ctx) {
		return errWithin
	}
	return s.write(ctx, s.db, func() error {
		_, err := s.db.ExecContext(ctx, s.say.put, args...)
		return err
	})
}

var errWithin = errors.New("the message's own transaction holds the database, and would be waited for in vain: put outside of " +
	"handlers with an idempotent receiver on the same file, or give the store a file of its own")

// within tells whether ctx is inside of a claim that keeps everybody else out of the store.
func (s *Store) within(ctx context.Context) bool {
	claim := chain.ClaimOf(ctx)
	return claim != nil && claim.Locks(s.db)
}

// Waiting is what is kept for one topic.
type Waiting struct {
	// Topic is where the messages will be published.
	Topic string
	// Messages is how many there are, those included that are being published.
	Messages int
	// Next is the time until the first of them is due, to the microsecond. Negative: it is overdue by as much.
	Next time.Duration
}

// Waiting counts what is kept, topic by topic, most messages first, 1,000 topics at most. It reads the whole table: now and
// then, for people and metrics.
func (s *Store) Waiting(ctx context.Context) (waiting []Waiting, err error) {
	if s == nil || s.db == nil {
		return nil, errNoDB
	}
	if ctx == nil {
		return nil, errNoContext
	}
	if s.within(ctx) && s.db.Stats().MaxOpenConnections == 1 {
		return nil, fmt.Errorf("delay: count what waits: %w", errWithin)
	}
	err = s.rows(ctx, func() { waiting = nil }, func(rows *sql.Rows) error {
		var w Waiting
		var topic []byte
		var next int64
		err := rows.Scan(&topic, &w.Messages, &next)
		w.Topic, w.Next = string(topic), microseconds(next)
		waiting = append(waiting, w)
		return err
	}, s.say.waiting, []byte(s.service))
	if err != nil {
		return nil, fmt.Errorf("delay: count what waits: %w", err)
	}
	return waiting, nil
}

// rows queries and scans each row. A writer of another process may be in the way: then it starts again after reset.
func (s *Store) rows(ctx context.Context, reset func(), scan func(*sql.Rows) error, query string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, maxWrite)
	defer cancel()
	return s.read(ctx, func() error {
		reset()
		rows, err := s.db.QueryContext(ctx, query, args...)
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

// microseconds bounds what the database says: its clock may have jumped.
func microseconds(n int64) time.Duration {
	const most = 10 * int64(MaxDelay/time.Microsecond) // which a Duration can still hold
	return time.Duration(max(-most, min(n, most))) * time.Microsecond
}

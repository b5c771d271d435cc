// Package delayed is the store of package delay, which says what it promises, and the relay that publishes what is due.
//
//	store, err := delayed.NewStore(ctx, db, "shop")
//	relay, err := delayed.NewRelay(store, publisher, delayed.RelayConfig{})
//	router.AddPlugin(relay.Plugin)
//
//	err = store.Put(ctx, "reminders", msg, 36*time.Hour)
package delayed

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/delays"
	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
)

// MaxDelay is the longest delay.
const MaxDelay = delays.MaxDelay

const (
	// maxWrite bounds every statement, the wait for others included.
	maxWrite = 30 * time.Second
	// maxTopic is how many bytes a topic's name may have: MySQL groups no longer ones without a file.
	maxTopic = 1024
	// maxWaiting is how many topics Waiting tells of.
	maxWaiting = 1000
)

// Store keeps messages in the table spillway_delayed until they are due. Relays publish them. It is safe for concurrent
// use, by any number of processes.
type Store struct {
	db      *database.Database
	service string
	alarms  alarms // of relays in this process

	// tick is how long the database's clock may stand still: a delay is as much longer, so that nothing is early on a
	// better clock.
	tick time.Duration
	// index is the hint by which rows are chosen. Otherwise, if many rows are due, MySQL would sort, and lock, all of
	// them.
	index  string
	insert string // a message
}

func newStore(on *database.Database, service string) *Store {
	s := &Store{db: on, service: service, insert: on.Statement(putRow)}
	switch on.Kind() {
	case database.MySQL:
		s.index = ` FORCE INDEX (spillway_delayed_ready)`
	case database.SQLite:
		s.tick = time.Millisecond
	}
	return s
}

var table = schema.Table{Component: "delayed", Name: "spillway_delayed", Key: []string{"seq"},
	Versions: []schema.Version{{
		File: "0006_delayed.sql",
		Columns: []string{"seq", "service", "topic", "id", "metadata", "payload", "size", "due_at", "ready_at", "token",
			"failures"},
	}}}

const putRow = `INSERT INTO spillway_delayed (service, topic, id, metadata, payload, size, due_at, ready_at)
VALUES (?, ?, ?, ?, ?, ?, now_us() + ?, now_us() + ?)`

// NewStore returns a Store, as delay.NewStore does.
func NewStore(ctx context.Context, db *sql.DB, service string) (*Store, error) {
	on, err := database.Open(ctx, "delay: NewStore", db, service, table)
	if err != nil {
		return nil, err
	}
	s := newStore(on, service)
	ctx, cancel := context.WithTimeout(ctx, maxWrite)
	defer cancel()
	if err := s.canTake(ctx); err != nil {
		return nil, fmt.Errorf("delay: NewStore: %w", err)
	}
	return s, nil
}

var (
	errNoStore   = errors.New("delay: the *Store is nil: look at the error of NewStore")
	errNoContext = errors.New("delay: the context is nil: give context.Background() if there is no other")
	errNoRelay   = errors.New("delay: the *Relay is nil: make it with NewRelay")
)

// DB returns the database of the Store.
func (s *Store) DB() *sql.DB { return s.db.DB() }

// Service returns the service of NewStore.
func (s *Store) Service() string { return s.service }

// Put keeps msg until after has passed on the database's clock, counted from when the statement runs. Then a Relay
// publishes msg to topic. When Put returns nil, the message is durable. If ctx carries a transaction that consumes a
// message, as the package's documentation says, it is durable when that commits. Put takes at most 30 seconds, and msg
// remains the caller's.
//
// With an after of 0 or less the message is due at once. These are errors:
//   - an after of more than MaxDelay, about ten years: it was meant in another unit
//   - a topic without a name, or of more than 1,024 bytes
//   - a message that is too large for the database: the error wraps classify.ErrTooLarge
//   - a ctx inside a receiver's claim on the same *sql.DB of SQLite: Put would wait for itself. Through another *sql.DB
//     on the same file it does wait, for 30 seconds.
//
// Calls that come while another one writes go together, with one statement. No call waits for others to come, and a
// message that the database refuses fails its own call alone. A call inside of a transaction is never put together with
// others.
//
// After an error of the connection the message may have been stored, and if ctx ends. If the connection is lost while
// several messages go together, each of them is put again, and may be there twice.
func (s *Store) Put(ctx context.Context, topic string, msg *message.Message, after time.Duration) error {
	if s == nil {
		return errNoStore
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
		return fmt.Errorf("delay: put message %q for %q: %w", boundedtext.Text(msg.UUID, logged),
			boundedtext.Text(topic, logged), err)
	}
	// If the transaction has not committed yet, a relay that looks in time may still find the message.
	s.alarms.bringForward(time.Now().Add(after + s.tick))
	return nil
}

func checkPut(topic string, msg *message.Message, after time.Duration) error {
	switch {
	case msg == nil:
		return errors.New("delay: put: the message is nil")
	case topic == "" || len(topic) > maxTopic:
		return fmt.Errorf("delay: put message %q: the topic's name has %d bytes, and must have 1 to %d",
			boundedtext.Text(msg.UUID, logged), len(topic), maxTopic)
	case after > MaxDelay:
		return fmt.Errorf("delay: put message %q: a delay of %s is longer than %s: is it meant in another unit?",
			boundedtext.Text(msg.UUID, logged), after, MaxDelay)
	}
	return nil
}

func (s *Store) put(ctx context.Context, r record, after time.Duration) error {
	// the server would hang up, and take the transaction with it
	if largest := s.db.Largest(); largest > 0 && r.size() > largest {
		return fmt.Errorf("%w: %d bytes, and the server takes at most %d", classify.ErrTooLarge, r.size(), largest)
	}
	args := r.args(after + s.tick)
	joined, err := chain.WriteJoined(ctx, s.db.DB(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, s.insert, args...)
		return err
	})
	if !joined {
		err = s.putAlone(ctx, args)
	}
	if s.db.TooLarge(err, r.size()) {
		err = fmt.Errorf("%w: %d bytes: %w", classify.ErrTooLarge, r.size(), err)
	}
	return s.db.OwnKey(err, table)
}

// putAlone stores a message outside of a transaction.
func (s *Store) putAlone(ctx context.Context, args []any) error {
	if s.db.Held(ctx) {
		return errHeld
	}
	_, err := s.db.Exec(ctx, s.insert, args...)
	return err
}

var errHeld = errors.New("the message's own transaction holds the database, so this would wait for itself: put " +
	"outside of handlers with an idempotent receiver on the same file, or give the store a file of its own")

// Waiting is what is kept for one topic.
type Waiting = delays.Waiting

// Waiting counts what is kept, topic by topic, most messages first, at most 1,000 topics. It reads the whole table, so
// call it now and then, for people and metrics.
func (s *Store) Waiting(ctx context.Context) (waiting []Waiting, err error) {
	if s == nil {
		return nil, errNoStore
	}
	if ctx == nil {
		return nil, errNoContext
	}
	if s.db.Held(ctx) && s.db.DB().Stats().MaxOpenConnections == 1 {
		return nil, fmt.Errorf("delay: count what waits: %w", errHeld)
	}
	err = s.rows(ctx, func() { waiting = nil }, func(rows *sql.Rows) error {
		var w Waiting
		var topic []byte
		var next int64
		err := rows.Scan(&topic, &w.Messages, &next)
		w.Topic, w.Next = string(topic), database.Microseconds(next)
		waiting = append(waiting, w)
		return err
	}, s.db.Statement(`SELECT topic, COUNT(*), MIN(due_at) - now_us() FROM spillway_delayed WHERE service = ? GROUP BY topic
ORDER BY COUNT(*) DESC, topic LIMIT ?`), []byte(s.service), maxWaiting)
	if err != nil {
		return nil, fmt.Errorf("delay: count what waits: %w", err)
	}
	return waiting, nil
}

// rows queries and calls scan with each row, after reset. If a writer of another process is in the way, it begins
// again.
func (s *Store) rows(ctx context.Context, reset func(), scan func(*sql.Rows) error, query string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, maxWrite)
	defer cancel()
	return s.db.Query(ctx, reset, scan, query, args...)
}

// Left returns what waits in db for a service that has no Store there, such as one that went back to stage topics. It
// makes no table: without one nothing waits. It reads the whole table, for at most 30 seconds.
func Left(ctx context.Context, db *sql.DB, service string) ([]Waiting, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	ctx, cancel := context.WithTimeout(ctx, maxWrite)
	defer cancel()
	on, err := database.Detect(ctx, db)
	there := false
	if err == nil {
		there, err = on.Has(ctx, table)
	}
	if err != nil {
		return nil, fmt.Errorf("delay: look for messages that are left: %w", err)
	}
	if !there {
		return nil, nil
	}
	return newStore(on, service).Waiting(ctx)
}

// record is a message as it goes into a row. Everything in it may hold any bytes.
type record struct {
	service  string
	topic    string
	msg      *message.Message
	metadata []byte
}

func newRecord(service, topic string, msg *message.Message) record {
	return record{service: service, topic: topic, msg: msg, metadata: metadatacodec.Metadata(msg.Metadata)}
}

// size is about what the row takes, in the database and in memory.
func (r record) size() int {
	return len(r.service) + len(r.topic) + len(r.msg.UUID) + len(r.metadata) + len(r.msg.Payload)
}

// args are what putRow binds.
func (r record) args(after time.Duration) []any {
	us := after.Microseconds()
	return []any{[]byte(r.service), []byte(r.topic), []byte(r.msg.UUID), r.metadata,
		metadatacodec.Payload(r.msg.Payload), r.size(), us, us}
}

// Package delayed is the store of package delay, which says what it promises, and the relay that publishes what is due.
//
//	store, err := delayed.NewStore(ctx, db, "shop")
//	err = delayed.NewRelay(store, publisher, delayed.RelayConfig{}).Run(ctx)
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
	"github.com/watermill-spillway/spillway/internal/sqlstore/delayed/waiting"
)

// MaxDelay is the longest delay.
const MaxDelay = delays.MaxDelay

const (
	// maxWrite bounds every statement, the wait for others included.
	maxWrite = 30 * time.Second
	// maxTopic is how many bytes a topic's name may have: MySQL groups no longer ones without a file.
	maxTopic = 1024
)

// Store keeps messages in the table spillway_delayed until they are due. Relays publish them. It is safe for concurrent
// use, by any number of processes.
type Store struct {
	*waiting.Table
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
	s := &Store{Table: waiting.Of(on, service), db: on, service: service, insert: on.Statement(putRow)}
	switch on.Kind() {
	case database.MySQL:
		s.index = ` FORCE INDEX (spillway_delayed_ready)`
	case database.SQLite:
		s.tick = time.Millisecond
	}
	return s
}

const putRow = `INSERT INTO spillway_delayed (service, topic, id, metadata, payload, size, due_at, ready_at)
VALUES (?, ?, ?, ?, ?, ?, now_us() + ?, now_us() + ?)`

// NewStore returns a Store, as delay.NewStore does.
func NewStore(ctx context.Context, db *sql.DB, service string) (*Store, error) {
	on, err := database.Open(ctx, "delay: NewStore", db, service, waiting.Schema)
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
)

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
	return s.db.OwnKey(err, waiting.Schema)
}

// putAlone stores a message outside of a transaction.
func (s *Store) putAlone(ctx context.Context, args []any) error {
	if s.db.Held(ctx) {
		return waiting.ErrHeld
	}
	_, err := s.db.Exec(ctx, s.insert, args...)
	return err
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

package letters

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain/consume"
	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/sqlstore/batcher"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/poison"
)

var (
	_ message.Publisher  = (*Store)(nil)
	_ poison.Initializer = (*Store)(nil)
)

// Publish stores messages as dead letters of the dead-letter topic: all of them or none, durable when it returns nil.
// It ends with the context of the first message, and after at most 30 seconds. A letter that is already in the table is
// not stored twice. A message that is no dead letter is stored too, as a failure of unknown class. Publish refuses a
// letter that is larger than the database takes, with an error that is classify.ErrTooLarge. A poison.Queue then cuts
// what it added to the message, and at last tries its fallbacks.
//
// Calls with one message that come while another call writes go together, with one statement or in one transaction. No
// call waits for others to come. A letter that the database refuses fails its own call alone.
func (s *Store) Publish(topic string, messages ...*message.Message) error {
	if s == nil {
		return errNilStore
	}
	if s.closed.Load() {
		return fmt.Errorf("%w: publish to %q", ErrClosed, logged(topic))
	}
	if len(messages) == 0 {
		return nil
	}
	for i, msg := range messages {
		if msg == nil {
			return fmt.Errorf("letters: publish to %q: message %d is nil", logged(topic), i)
		}
	}
	ctx, cancel := context.WithTimeout(messages[0].Context(), maxWrite)
	defer cancel()
	records, largest := make([]record, len(messages)), 0
	for i, msg := range messages {
		if _, sealed := msg.Metadata[poison.KeySealed]; s.seal != nil && !sealed {
			var err error
			if msg, _, err = inside.Poison.Seal(ctx, s.seal, msg); err != nil {
				return fmt.Errorf("letters: publish to %q: %w", logged(topic), err)
			}
		}
		records[i] = newRecord(s.service, topic, msg)
		largest = max(largest, records[i].size())
	}
	if limit := s.db.Largest(); limit > 0 && largest > limit {
		return fmt.Errorf("letters: publish to %q: %w: the letter has %d bytes, and the server takes %d: "+
			"raise max_allowed_packet, or give the queue a fallback for larger letters", logged(topic), classify.ErrTooLarge,
			largest, limit)
	}
	err := s.storeGathered(ctx, records)
	if s.db.TooLarge(err, largest) {
		err = fmt.Errorf("%w: %w", classify.ErrTooLarge, err)
	}
	if err != nil {
		return fmt.Errorf("letters: store %d letter(s) of %q: %w", len(messages), logged(topic), err)
	}
	for i := range records {
		s.known.add(records[i].cause)
	}
	return nil
}

// storeGathered stores letters. A single one goes together with those of other callers, if there are any. The first
// letter of a cause goes alone, because it brings the cause along.
func (s *Store) storeGathered(ctx context.Context, records []record) error {
	if len(records) > 1 {
		return s.storeAll(ctx, records)
	}
	if !s.known.has(records[0].cause) || s.db.Held(ctx) {
		return s.storeAll(ctx, records)
	}
	return s.batcher.Do(ctx, &records[0], records[0].size(), func() error {
		if s.manyFresh != nil {
			if stored, err := s.storeManyFresh(ctx, []*record{&records[0]}); err != nil || len(stored) > 0 {
				return s.own(err)
			}
		}
		return s.storeAll(ctx, records)
	})
}

// storeAll stores letters in one transaction. If another one that stores the same letters in another order was in the
// way, it goes in the order of their identities from then on, in which none waits for the other.
func (s *Store) storeAll(ctx context.Context, records []record) error {
	again := false
	return s.writeLetters(ctx, len(records), func(tx *sql.Tx, t tally) error {
		if again {
			records = slices.SortedFunc(slices.Values(records), func(a, b record) int {
				return bytes.Compare(a.identity, b.identity)
			})
		}
		again = true
		now := time.Now()
		for i := range records {
			if err := s.store(ctx, tx, t, &records[i], now); err != nil {
				return err
			}
		}
		return nil
	})
}

// Close ends publishing: a Publish that starts afterwards fails with ErrClosed. The database stays open, and all other
// methods go on working.
func (s *Store) Close() error {
	if s == nil {
		return errNilStore
	}
	s.closed.Store(true)
	return nil
}

// InitializeTopics checks that letters can be written: the table exists, and the database is not read-only. Dead-letter
// topics need nothing in the database.
func (s *Store) InitializeTopics(topics ...string) error {
	if s == nil {
		return errNilStore
	}
	if s.closed.Load() {
		return fmt.Errorf("%w: initialize %d topic(s)", ErrClosed, len(topics))
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxWrite)
	defer cancel()
	err := s.write(ctx, func(tx *sql.Tx) error {
		_, err := s.exec(ctx, tx, `UPDATE spillway_dead_letters SET seen = seen WHERE seq = 0`)
		return err
	})
	if err != nil {
		return fmt.Errorf("letters: the Store cannot be written: %w", err)
	}
	return nil
}

// nackPause is the wait before a message that was not stored is requeued: some subscribers redeliver at once, without
// end.
const nackPause = 50 * time.Millisecond

// Collect adds to the router a handler for each dead-letter topic, named spillway_store_<topic>, that moves its
// messages into the Store. A message is acked when it is durable there, and nacked if it cannot be written. A chain of
// the whole router lets these messages pass. The router closes sub. A wrong argument is an error of Router.Run. So is,
// with wmkafka's subscriber, a consumer group without an offset in a topic of which the Store had letters: they would
// come again, also those that were discarded or purged.
func (s *Store) Collect(sub message.Subscriber, topics ...string) message.RouterPlugin {
	add := consume.Plugin("letters", "spillway_store_", sub, topics, func(topic string, msg *message.Message) error {
		err := s.Publish(topic, msg)
		if err != nil {
			timing.Wait(msg.Context(), nackPause)
		}
		return err
	})
	return func(router *message.Router) error {
		if err := add(router); err != nil {
			return err
		}
		of, is := hidden.In[inside.Group](sub)
		if !is {
			return nil
		}
		for _, topic := range topics {
			if err := s.resumed(topic, of); err != nil {
				return wrapped(fmt.Sprintf("collect %q", topic), err)
			}
		}
		return nil
	}
}

// resumed returns an error if the topic would be read again from its beginning. A cause says that it was read before,
// and outlives its letters.
func (s *Store) resumed(topic string, of inside.Group) error {
	ctx, cancel := context.WithTimeout(context.Background(), maxWrite)
	defer cancel()
	if err := s.usable(ctx); err != nil {
		return err
	}
	before := false
	err := s.read(ctx, func() {}, func(*sql.Rows) error { before = true; return nil },
		`SELECT 1 FROM spillway_letter_causes WHERE service = ? AND dead_letter_topic = ? LIMIT 1`,
		asBytes(s.service), asBytes(topic))
	if err != nil || !before {
		return err
	}
	has := false
	err = safecall.Call("letters.Begun", func() (err error) { has, err = of.Begun(ctx, topic); return err })
	if err == nil && !has {
		err = errOffsetsGone
	}
	return err
}

var errOffsetsGone = errors.New("the Store had letters of this topic, but the consumer group has no offset in it: " +
	"its offsets are gone, and letters that were discarded or purged would wait again; set them by " +
	"kafka-consumer-groups.sh --reset-offsets: --to-datetime with the time when the group was last read, or " +
	"--to-earliest to collect all again")

// What one statement takes of letters that are published at the same time.
const (
	togetherRows  = 64
	togetherBytes = 1 << 20
	togetherWait  = 5 * time.Second // then each letter goes alone
)

// newBatcher batches letters that are published at the same time by different callers.
func (s *Store) newBatcher() *batcher.Batcher[*record] {
	most := togetherBytes
	if limit := s.db.Largest(); limit > 0 {
		most = min(most, limit/4) // a driver may double values by escaping
	}
	together := map[database.Kind]func(context.Context, []*record) (stored map[string]bool, err error){
		database.SQLite: s.storeInTurn, database.Postgres: s.storeManyFresh, database.MySQL: s.storeInTurn,
	}[s.db.Kind()]
	return batcher.New(batcher.Config[*record]{
		Rows: togetherRows, Bytes: most, Lanes: batcher.Lanes(s.db.Kind() == database.SQLite), Timeout: togetherWait,
		Together: func(ctx context.Context, records []*record) (leftOut []int, err error) {
			stored, err := together(ctx, firstOfEach(records))
			for i, r := range records {
				if stored[string(r.identity)] {
					delete(stored, string(r.identity)) // one that is the same arrives again
				} else {
					leftOut = append(leftOut, i)
				}
			}
			return leftOut, err
		},
	})
}

// firstOfEach returns the records without those that are the same letter as one before.
func firstOfEach(records []*record) (first []*record) {
	seen := make(map[string]bool, len(records))
	for _, r := range records {
		if !seen[string(r.identity)] {
			seen[string(r.identity)] = true
			first = append(first, r)
		}
	}
	return first
}

func identitiesOf(records []*record) map[string]bool {
	all := make(map[string]bool, len(records))
	for _, r := range records {
		all[string(r.identity)] = true
	}
	return all
}

// storeInTurn stores letters one after the other in one transaction: on SQLite a statement costs no round trip.
func (s *Store) storeInTurn(ctx context.Context, records []*record) (map[string]bool, error) {
	all := make([]record, len(records))
	for i, r := range records {
		all[i] = *r
	}
	return identitiesOf(records), s.storeAll(ctx, all)
}

// storeManyFresh stores and counts letters that are new in one statement, in the order in which they came. It does
// nothing about letters that are there. Only PostgreSQL has such a statement.
func (s *Store) storeManyFresh(ctx context.Context, records []*record) (stored map[string]bool, err error) {
	slot, requeue := s.slots.take()
	defer requeue()
	now := time.Now()
	size := bits.Len(uint(len(records) - 1)) // few sizes, so that drivers and servers keep few statements
	args := make([]any, 0, (1<<size)*freshColumns+3)
	for _, r := range records {
		args = append(append(args, r.args(now, s.db)...), r.metadata, metadatacodec.Payload(r.msg.Payload))
	}
	args = append(args, make([]any, ((1<<size)-len(records))*freshColumns)...)
	args = append(args, []byte(s.service), slot, now.Unix()/60)
	err = s.db.Return(ctx, func() { stored = make(map[string]bool, len(records)) }, func(rows *sql.Rows) error {
		var identity []byte
		err := rows.Scan(&identity)
		stored[string(identity)] = true
		return err
	}, s.manyFresh[size], args...)
	return stored, err
}

// freshColumns are the columns of a letter and of its body, by their types in PostgreSQL.
const freshColumns = 21

const freshRow = `(?::bytea, ?::bytea, ?::bytea, ?::bytea, ?::bytea, ?::text, ?::bytea, ?::bytea, ?::bytea, ?::bytea,
	?::bigint, ?::bigint, ?::bigint, ?::bytea, ?::text, ?::bigint, ?::bytea, ?::text, ?::text, ?::bytea, ?::bytea)`

// manyFreshStatement stores letters that are different and new, with their bodies, and counts them: all that Publish
// does, for one round trip. It does nothing about letters that are there. It returns the identities of those that it
// stored.
func manyFreshStatement(rows int) string {
	return `WITH v (` + insertColumns + `, metadata, payload) AS (VALUES ` + freshRow + strings.Repeat(`, `+freshRow, rows-1) + `),
	l AS (INSERT INTO spillway_dead_letters (` + insertColumns + `) SELECT ` + insertColumns + ` FROM v WHERE identity IS NOT NULL ON CONFLICT (identity) DO NOTHING RETURNING seq, identity),
	c AS (` + countInto() + `SELECT ?::bytea, v.cause, ?::bigint, COUNT(*)` + strings.Repeat(`, 0`, len(Statuses())-1) + `, COUNT(*), MIN(v.first_failed_at),
		MAX(v.last_failed_at), MAX(l.seq), ?::bigint, COUNT(*), 0 FROM l JOIN v USING (identity) GROUP BY v.cause ORDER BY v.cause
		` + countsConflict.add() + `),
	b AS (INSERT INTO spillway_letter_bodies (body, metadata, payload)
		SELECT l.seq, v.metadata, v.payload FROM l JOIN v USING (identity))
SELECT identity FROM l`
}

// manyFreshStatements are those of 1, 2, 4 and so on up to togetherRows letters.
func manyFreshStatements(statement func(string) string) (texts []string) {
	for rows := 1; rows <= togetherRows; rows *= 2 {
		texts = append(texts, statement(manyFreshStatement(rows)))
	}
	return texts
}

package letters

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
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
			if msg, _, err = poison.Inside().Seal(ctx, s.seal, msg); err != nil {
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
	alone := func() error {
		stored, err := s.storeFresh(ctx, &records[0], time.Now())
		if err == nil && !stored {
			err = s.storeAll(ctx, records)
		}
		return err
	}
	if s.batcher == nil || !s.known.has(records[0].cause) || s.db.Held(ctx) {
		return alone()
	}
	return s.batcher.Do(ctx, &records[0], records[0].size(), alone)
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
	return s.prepared.close()
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

package letters

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

// EventKind is what became of a letter.
type EventKind string

const (
	// EventStored says that the letter arrived. The letter's own row is the record of it, with the time in stored_at,
	// so that an arrival costs no row more. History makes the event of that row. Purge, which deletes the row, and
	// Erase write the event.
	EventStored EventKind = "stored"
	// EventArrivedAgain says that the same letter arrived once more.
	EventArrivedAgain EventKind = "arrived_again"
	// EventSelected says that a campaign chose the letter.
	EventSelected EventKind = "selected"
	// EventEdited says that a redrive publishes the letter's message with changes. The letter stays as it is.
	EventEdited EventKind = "edited"
	// EventWaiting says that the letter was restored: it has StatusWaiting again.
	EventWaiting EventKind = "waiting"
	// EventRedriven says that the letter was published to its topic.
	EventRedriven EventKind = "redriven"
	// EventQuarantined says that the letter was redriven too often.
	EventQuarantined EventKind = "quarantined"
	// EventRefused says that a person refused the letter.
	EventRefused EventKind = "refused"
	// EventDiscarded says that a person gave the letter up.
	EventDiscarded EventKind = "discarded"
	// EventSucceeded says that the redriven message was handled.
	EventSucceeded EventKind = "succeeded"
	// EventFailedAgain says that the redriven message became a dead letter again.
	EventFailedAgain EventKind = "failed_again"
	// EventResealed says that Reseal sealed the letter, for the first time or with another key.
	EventResealed EventKind = "resealed"
	// EventKeyRemoved says that a redrive lets the handler of an applied message run again, as a person chose: the
	// receiver's key of the message was removed.
	EventKeyRemoved EventKind = "key_removed"
	// EventShown says that a person saw the letter without masks.
	EventShown EventKind = "shown"
	// EventPurged says that the letter was deleted.
	EventPurged EventKind = "purged"
	// EventErased says that the payload, the metadata and the texts of the letter were erased.
	EventErased EventKind = "erased"
	// EventErasure says that a person's data were erased, or were looked for, in all that Spillway keeps. It belongs to
	// no letter: its Seq is 0.
	EventErasure EventKind = "erasure"
	// EventSequence says that a person released, skipped or discarded messages that wait in the order of their key. It
	// belongs to no letter: its Seq is 0, and its MessageID is that of the first message.
	EventSequence EventKind = "sequence"
	// EventPolicy says that a standing policy was frozen or thawed, or that a cause was blocked or released for it. It
	// belongs to no letter: its Seq is 0.
	EventPolicy EventKind = "policy"
	// EventFreeze says that a person held the messages of a handler, or of all, in all instances, or ended that. It belongs
	// to no letter: its Seq is 0.
	EventFreeze EventKind = "freeze"
	// EventCause says that a person changed the note, the owner, the link or the snooze of a cause, or that a snoozed
	// cause grew and woke. It belongs to no letter: its Seq is 0.
	EventCause EventKind = "cause"
)

// Event is one entry of the record. Entries are never changed or deleted by a Store, not even if their letter is
// purged.
type Event struct {
	// Number orders the events. It is 0 for EventStored of a letter that is there.
	Number int64
	// Seq is the Seq that the letter had.
	Seq int64
	// MessageID is the id of the message. An id that is longer than 255 bytes, or cannot be read, is kept as its hash.
	MessageID string
	Kind      EventKind
	// At is when it happened, by the database's clock.
	At time.Time
	Act

	identity string // of the letter
}

// subject is a letter that an event is about.
type subject struct {
	seq          int64
	identity, id []byte
	storedAt     int64 // for EventStored
}

// eventsAtOnce bounds how many events one statement inserts.
const eventsAtOnce = 200

// record writes an event for each letter, within the transaction that changes the letters.
func (s *Store) record(ctx context.Context, tx *sql.Tx, kind EventKind, act Act, about ...subject) error {
	if err := act.validate(); err != nil {
		return fmt.Errorf("record %s: %w", kind, err)
	}
	for len(about) > 0 {
		some := about[:min(len(about), eventsAtOnce)]
		about = about[len(some):]
		args := make([]any, 0, len(some)*10)
		for _, l := range some {
			args = append(args, []byte(s.service), l.seq, l.identity, s.db.Text(database.Column(string(l.id))),
				s.db.Text(string(kind)))
			if kind == EventStored {
				args = append(args, l.storedAt)
			}
			args = append(args, s.db.Text(boundedtext.Text(act.By, maxBy)), s.db.Text(act.Reason), s.db.Text(act.RedriveID),
				s.db.Text(boundedtext.Text(act.Detail, maxDetail)))
		}
		_, err := s.exec(ctx, tx, recordStatement(kind, len(some)), args...)
		if err != nil {
			return fmt.Errorf("record %s: %w", kind, s.own(err))
		}
	}
	return nil
}

func recordStatement(kind EventKind, n int) string {
	row := `(?, ?, ?, ?, ?, now_us(), ?, ?, ?, ?)`
	if kind == EventStored {
		row = strings.Replace(row, `now_us()`, `?`, 1)
	}
	return `INSERT INTO spillway_letter_events
(service, letter, identity, message, kind, at, actor, reason, redrive_id, detail) VALUES ` + row + strings.Repeat(`,`+row, n-1)
}

// subjects reads what the record says of letters. Letters that are not there, or of another service, are left out.
func (s *Store) subjects(ctx context.Context, tx *sql.Tx, seqs []int64) (found []subject, err error) {
	keys, args := s.among(seqs)
	err = database.Each(ctx, tx, func(rows *sql.Rows) error {
		var l subject
		err := rows.Scan(&l.seq, &l.identity, &l.id)
		found = append(found, l)
		return err
	}, s.db.Statement(`SELECT seq, identity, id FROM spillway_dead_letters WHERE `+keys+
		` AND COALESCE(service, '') = ? ORDER BY seq`),
		append(args, []byte(s.service))...)
	return found, err
}

// Record writes an event for each of the letters, and changes nothing else: selected, edited or shown. tx is a
// transaction on the Store's database, or nil. Record returns the Seqs of the letters that are there.
func (s inner) Record(ctx context.Context, tx *sql.Tx, kind EventKind, act Act,
	seqs ...int64) (recorded []int64, err error) {
	if len(seqs) == 0 {
		return nil, nil
	}
	work := func(tx *sql.Tx) error {
		about, err := s.subjects(ctx, tx, seqs)
		recorded = recorded[:0]
		for _, l := range about {
			recorded = append(recorded, l.seq)
		}
		if err != nil {
			return err
		}
		return s.record(ctx, tx, kind, act, about...)
	}
	if tx != nil {
		err = work(tx)
	} else {
		err = s.write(ctx, work)
	}
	if err != nil {
		return nil, fmt.Errorf("letters: %w", err)
	}
	return recorded, nil
}

// RecordSequence writes the event sequence, in a transaction on the Store's database. act.Detail says what was
// decided about how many messages, without their key.
func (s inner) RecordSequence(ctx context.Context, tx *sql.Tx, messageID string, act Act) error {
	return wrapped("record a decision", s.record(ctx, tx, EventSequence, act,
		subject{identity: []byte{}, id: []byte(messageID)}))
}

// RecordPolicy writes the event policy, in a transaction on the Store's database. act.Detail says what was done
// with which policy.
func (s inner) RecordPolicy(ctx context.Context, tx *sql.Tx, act Act) error {
	return wrapped("record a policy", s.record(ctx, tx, EventPolicy, act, subject{identity: []byte{}}))
}

// RecordFreeze writes the event freeze. act.Detail says what was done with which handler.
func (s inner) RecordFreeze(ctx context.Context, act Act) error {
	return s.recordAlone(ctx, "record a freeze", EventFreeze, act)
}

// recordAlone writes an event that belongs to no letter, in a transaction of its own.
func (s *Store) recordAlone(ctx context.Context, what string, kind EventKind, act Act) error {
	return wrapped(what, s.write(ctx, func(tx *sql.Tx) error {
		return s.record(ctx, tx, kind, act, subject{identity: []byte{}})
	}))
}

// Act says who changes letters, and why. The record of events keeps it.
type Act struct {
	// By names the person or program. The record keeps 1 KiB of it.
	By string
	// Reason says why, in words or as a code such as max_redrives_exceeded. It is UTF-8 text of at most 1 KiB.
	Reason string
	// RedriveID is the id of the drain or campaign that makes the change. It is UTF-8 text of at most 255 bytes.
	RedriveID string
	// Detail is what the event itself says, such as the edit of a letter. The record keeps 4 KiB of it. Default:
	// nothing.
	Detail string
}

const (
	maxBy     = 1 << 10 // bytes
	maxReason = 1 << 10
	maxDetail = 4 << 10
	maxID     = 255
)

// validate returns an error for what could not be found again as it was given.
func (a *Act) validate() error {
	for _, field := range []struct {
		name, value string
		most        int
	}{{"Reason", a.Reason, maxReason}, {"RedriveID", a.RedriveID, maxID}} {
		if boundedtext.Text(field.value, field.most) != field.value {
			return fmt.Errorf("the field Act.%s %q must be text of at most %d bytes", field.name, logged(field.value),
				field.most)
		}
	}
	return nil
}

// logged bounds a value that came with a message, or from a caller, before it goes into an error.
func logged(value string) string { return boundedtext.Text(value, 200) }

// HandleAgain lets the handler of a claimed letter run again although the idempotent receiver has applied its
// message: it removes the receiver's key, whose id is the message's, and records it. What the handler wrote before
// is written again then, and what it produces anew takes the place of the recorded outputs. It reports false if
// there is no such key: then the handler runs anyway, or the receiver has other keys. Publish the letter after it.
func (s inner) HandleAgain(ctx context.Context, l Letter, act Act) (removed bool, err error) {
	if l.Original == nil || l.Original.UUID == "" {
		return false, nil
	}
	err = s.write(ctx, func(tx *sql.Tx) error {
		// no lease: a handler is at work
		result, err := s.exec(ctx, tx, `DELETE FROM spillway_keys WHERE consumer = ? AND id = ? AND expires_at IS NULL`,
			s.db.Text(database.Column(s.consumer(l.Origin.Handler))), s.db.Text(database.Column(l.Original.UUID)))
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if removed = n > 0; err != nil || !removed {
			return err
		}
		return s.record(ctx, tx, EventKeyRemoved, act, subjectOf(l))
	})
	return removed, wrapped(fmt.Sprintf("let the handler of letter %d run again", l.Seq), err)
}

// CheckKeys returns an error if the idempotent receiver does not keep its keys in the database of the letters.
func (s inner) CheckKeys(ctx context.Context) error {
	return wrapped("look for the receiver's keys", s.readKeys(ctx))
}

package redrive

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/metadatacodec"
	"github.com/watermill-spillway/spillway/poison"
)

// Entry is a letter in a Store.
type Entry struct {
	// Seq orders letters by arrival. A letter that came again after it was redriven or discarded has a new one, and so has
	// one that a publisher refused to a Drain: it waits behind all others. A List that pages by it may show these twice.
	Seq int64
	// Letter is the letter as it arrived last. Of a message that is no dead letter only Original and Topic are sure.
	Letter poison.Letter
	// DeadLetterTopic is the topic it was placed in.
	DeadLetterTopic string
	Status          Status
	// Seen counts how often the letter arrived.
	Seen int
	// StoredAt is when it arrived first.
	StoredAt time.Time

	// Marked tells of the latest change of Status; zero when there was none.
	Marked Marked
}

// Marked is the record of what was done with a letter.
type Marked struct {
	At time.Time
	// By is who did it.
	By string
	// Why is a reason for programs: max_redrives_exceeded, or topic_not_allowed of a release that refused letters.
	Why string
	// RedriveID is the id of the drain that did it.
	RedriveID string
}

const entryColumns = `seq, dead_letter_topic, id, metadata, payload, payload IS NOT NULL, status, seen, stored_at, marked_at, marked_by, marked_why, redrive_id`

// List returns the letters that f chooses, in the order of Seq, at most Filter.Limit of them with everything they hold.
// StoreConfig.MaxRead may make a page shorter: the next page is after the Seq of the last letter, and only an empty page
// says that there are no more. On PostgreSQL and MySQL a letter that is being stored meanwhile may come to stand within a
// page that was read already.
func (s *Store) List(ctx context.Context, f Filter) ([]Entry, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if err := f.validate("Filter"); err != nil {
		return nil, err
	}
	for {
		chosen, _, err := s.choose(ctx, s.where(f), f.limit(), s.maxRead, true)
		if err == nil && len(chosen) == 0 {
			return nil, nil
		}
		var entries []Entry
		if err == nil {
			w := s.whereByKey(f, chosen)
			entries, err = s.entries(ctx, `SELECT `+entryColumns+` FROM spillway_dead_letters`+w.String()+` ORDER BY seq`, w.args...)
		}
		if err != nil {
			return nil, fmt.Errorf("redrive: list dead letters: %w", err)
		}
		if len(entries) > 0 {
			return entries, nil
		}
		f.After = chosen[len(chosen)-1] // all of these changed their status just now
	}
}

// Count returns how many letters f chooses, whatever its Limit.
func (s *Store) Count(ctx context.Context, f Filter) (int, error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	if err := f.validate("Filter"); err != nil {
		return 0, err
	}
	w, n := s.where(f), 0
	err := s.read(ctx, func() {}, func(rows *sql.Rows) error { return rows.Scan(&n) },
		`SELECT COUNT(*) FROM spillway_dead_letters`+w.String(), w.args...)
	if err != nil {
		return 0, fmt.Errorf("redrive: count dead letters: %w", err)
	}
	return n, nil
}

func (s *Store) entries(ctx context.Context, query string, args ...any) ([]Entry, error) {
	var entries []Entry
	err := s.read(ctx, func() { entries = nil }, func(rows *sql.Rows) error {
		e, err := scanEntry(rows)
		entries = append(entries, e)
		return err
	}, query, args...)
	return entries, err
}

func scanEntry(rows *sql.Rows) (Entry, error) {
	var e Entry
	var topic, id, metadata, payload []byte
	var status string
	var hasPayload bool
	var storedAt, markedAt int64
	err := rows.Scan(&e.Seq, &topic, &id, &metadata, &payload, &hasPayload, &status, &e.Seen, &storedAt,
		&markedAt, &e.Marked.By, &e.Marked.Why, &e.Marked.RedriveID)
	if err != nil {
		return Entry{}, err
	}
	if hasPayload && payload == nil { // an empty BLOB reads as nil in some drivers; brokers tell empty from none
		payload = []byte{}
	}
	msg := message.NewMessage(string(id), payload)
	var damage error
	if msg.Metadata, damage = metadatacodec.Read(metadata); damage != nil { // shown, so that those behind it can be reached
		msg.Metadata = message.Metadata{}
	}
	e.DeadLetterTopic, e.Status = string(topic), Status(status)
	e.StoredAt, e.Marked.At = fromMicro(storedAt), fromMicro(markedAt)
	e.Letter = poison.Read(msg)
	e.Letter.Topic = e.DeadLetterTopic
	if damage != nil {
		e.Letter.Failure.Description = fmt.Sprintf("letter %d is damaged: %v", e.Seq, damage)
	}
	return e, nil
}

func fromMicro(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

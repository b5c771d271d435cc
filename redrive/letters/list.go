package letters

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
	"github.com/watermill-spillway/spillway/poison"
)

// Letter is a dead letter in a Store.
type Letter struct {
	// Letter is the letter as it arrived last. Of a message that is no dead letter only Original and DeadLetterTopic
	// are known.
	poison.Letter
	// Seq orders letters by arrival. A letter gets a new Seq, behind all others, in two cases: it arrived again after
	// it was redriven or discarded, or a publisher refused it. A List that pages by Seq may return such a letter twice.
	Seq    int64
	Status Status
	// Seen counts how often the letter arrived.
	Seen int
	// Cause is the hash of its cause, as Group.Cause has it.
	Cause string
	// Size is the number of bytes of its metadata and payload.
	Size int
	// StoredAt is when the letter arrived first.
	StoredAt time.Time
	// MarkedAt is the time of the latest change of Status, by the database's clock. It is zero if there was none.
	MarkedAt time.Time
	// Marked says who made that change, and why. Its Detail is empty: it is in the Event.
	Marked Act

	identity []byte
}

// letterQuery reads whole letters. An erased one has no body.
const letterQuery = `SELECT seq, dead_letter_topic, id, metadata, payload, payload IS NOT NULL,
	status, seen, stored_at, marked_at, marked_by, marked_why, redrive_id, identity, cause, size, ` + bodyOf + ` AS its_body
FROM spillway_dead_letters LEFT JOIN spillway_letter_bodies ON body = ` + bodyOf

// List returns the letters that f chooses, in the order of Seq or with Filter.NewestFirst the other way round, at most
// Filter.Limit of them, and those of 32 MiB. The next page is after the Seq of the last letter.
// Only an empty page means that there are no more letters. On PostgreSQL and MySQL, a letter that is being stored at
// the same time may appear within a page that was already read.
func (s *Store) List(ctx context.Context, f Filter) ([]Letter, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if err := f.Validate(); err != nil {
		return nil, err
	}
	found, err := listed(ctx, s, f, s.maxRead, func(w *where) ([]Letter, error) {
		return s.letters(ctx, letterQuery+w.String()+` ORDER BY seq`+f.direction(), w.args...)
	})
	return found, wrapped("list", err)
}

// listed reads the letters that f chooses, of at most so many bytes.
func listed[L any](ctx context.Context, s *Store, f Filter, most int, read func(*where) ([]L, error)) ([]L, error) {
	for {
		chosen, err := s.choose(ctx, f, false, f.limit(), most, true)
		if err != nil || len(chosen.seqs) == 0 {
			return nil, err
		}
		found, err := read(s.whereByKey(f, chosen.seqs))
		if err != nil || len(found) > 0 {
			return found, err
		}
		f.After = chosen.seqs[len(chosen.seqs)-1] // all of these changed their status just now
	}
}

// LastSeq returns the greatest Seq in the table, or 0. As Filter.MaxSeq it leaves out letters that arrive later.
func (s inner) LastSeq(ctx context.Context) (int64, error) {
	return s.lastSeq(ctx)
}

func (s *Store) lastSeq(ctx context.Context) (last int64, err error) {
	err = s.read(ctx, func() {}, func(rows *sql.Rows) error { return rows.Scan(&last) },
		`SELECT COALESCE(MAX(seq), 0) FROM spillway_dead_letters`)
	return last, wrapped("look for the last letter", err)
}

func (s *Store) letters(ctx context.Context, query string, args ...any) ([]Letter, error) {
	var found []Letter
	err := s.read(ctx, func() { found = nil }, func(rows *sql.Rows) error {
		l, err := scanLetter(rows)
		found = append(found, l)
		return err
	}, query, args...)
	return found, err
}

func scanLetter(rows *sql.Rows) (Letter, error) {
	var l Letter
	var topic, id, metadata, payload []byte
	var status string
	var hasPayload bool
	var storedAt, markedAt, body int64
	err := rows.Scan(&l.Seq, &topic, &id, &metadata, &payload, &hasPayload, &status, &l.Seen, &storedAt,
		&markedAt, &l.Marked.By, &l.Marked.Reason, &l.Marked.RedriveID, &l.identity, &l.Cause, &l.Size, &body)
	if err != nil {
		return Letter{}, err
	}
	if hasPayload && payload == nil { // an empty BLOB reads as nil in some drivers; brokers tell empty from none
		payload = []byte{}
	}
	msg := message.NewMessage(string(id), payload)
	var damage error
	if Status(status) == StatusErased {
		msg.Metadata = message.Metadata{}
	} else if msg.Metadata, damage = metadatacodec.Read(metadata); damage != nil { // shown, so that the letters behind it can be reached
		msg.Metadata = message.Metadata{}
	}
	l.Status, l.StoredAt, l.MarkedAt = Status(status), fromMicro(storedAt), fromMicro(markedAt)
	l.Letter = poison.Read(msg)
	l.DeadLetterTopic, l.Identity = string(topic), ownIdentity(body, storedAt)
	if damage != nil {
		l.Failure.Description = fmt.Sprintf("letter %d is damaged: %v", l.Seq, damage)
	}
	return l, nil
}

func fromMicro(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// Head is a letter without its metadata and payload: what lists and screens need, in a few hundred bytes. Get returns
// the letter.
type Head struct {
	Seq       int64
	MessageID string
	Status    Status
	// Cause is the hash of the cause, as Group.Cause has it.
	Cause                           string
	DeadLetterTopic, Topic, Handler string
	Class                           classify.Class
	Reason, Type, StackHash         string
	// Description is that of the latest failure, cut after 1,000 characters.
	Description                 string
	FirstFailedAt, LastFailedAt time.Time
	// Seen counts how often the letter arrived.
	Seen int
	// Size is the number of bytes of its metadata and payload.
	Size     int
	StoredAt time.Time
	MarkedAt time.Time
	Marked   Act
	// SealKey is the id of the key that the letter is sealed with. It is empty if the letter is not sealed, and ? if
	// the letter does not say.
	SealKey string
	// LeasedBy names the process, by its host and id, that has the lease. It is empty if there is no lease.
	LeasedBy string
	// LeasedUntil is when the lease ends, by the database's clock. It is zero if there is no lease.
	LeasedUntil time.Time
}

const headQuery = `SELECT seq, id, status, cause, dead_letter_topic, origin_topic, handler, class, reason, type, stack_hash, SUBSTR(description, 1, 1000),
	first_failed_at, last_failed_at, seen, size, stored_at, marked_at, marked_by, marked_why, redrive_id, seal_key,
	CASE WHEN leased_until > now_us() THEN leased_by ELSE '' END, CASE WHEN leased_until > now_us() THEN leased_until ELSE 0 END
FROM spillway_dead_letters`

// Heads returns the letters that f chooses without their metadata and payloads, in the order of List, at most
// Filter.Limit of them. It pages as List does.
func (s *Store) Heads(ctx context.Context, f Filter) ([]Head, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if err := f.Validate(); err != nil {
		return nil, err
	}
	heads, err := listed(ctx, s, f, math.MaxInt, func(w *where) (heads []Head, err error) {
		err = s.read(ctx, func() { heads = nil }, func(rows *sql.Rows) error {
			h, err := scanHead(rows)
			heads = append(heads, h)
			return err
		}, headQuery+w.String()+` ORDER BY seq`+f.direction(), w.args...)
		return heads, err
	})
	return heads, wrapped("list heads", err)
}

func scanHead(rows *sql.Rows) (Head, error) {
	var h Head
	var id, deadLetterTopic, topic, handler []byte
	var class string
	var first, last, storedAt, markedAt, leasedUntil int64
	err := rows.Scan(&h.Seq, &id, &h.Status, &h.Cause, &deadLetterTopic, &topic, &handler, &class, &h.Reason, &h.Type,
		&h.StackHash, &h.Description, &first, &last, &h.Seen, &h.Size, &storedAt, &markedAt, &h.Marked.By, &h.Marked.Reason,
		&h.Marked.RedriveID, &h.SealKey, &h.LeasedBy, &leasedUntil)
	h.MessageID, h.DeadLetterTopic, h.Topic, h.Handler, h.Class = string(id), string(deadLetterTopic), string(topic),
		string(handler), classOf(class)
	h.FirstFailedAt, h.LastFailedAt, h.StoredAt = fromMicro(first), fromMicro(last), fromMicro(storedAt)
	h.MarkedAt, h.LeasedUntil = fromMicro(markedAt), fromMicro(leasedUntil)
	return h, err
}

// Get returns the letter of a Seq, whatever its status. It returns ErrNotFound if the service has no such letter.
func (s *Store) Get(ctx context.Context, seq int64) (Letter, error) {
	if err := s.usable(ctx); err != nil {
		return Letter{}, err
	}
	found, err := s.letters(ctx, letterQuery+` WHERE seq = ? AND COALESCE(service, '') = ?`, seq, asBytes(s.service))
	if err == nil && len(found) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Letter{}, fmt.Errorf("letters: get letter %d: %w", seq, err)
	}
	return found[0], nil
}

// ErrNotFound is the error of a letter that is not there, or of another service.
var ErrNotFound = errors.New("there is no such letter: it was purged, belongs to another service, or has another Seq now")

// wrapped says what failed.
func wrapped(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("letters: %s: %w", what, err)
}

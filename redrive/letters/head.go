package letters

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/watermill-spillway/spillway/classify"
)

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
	for {
		chosen, err := s.choose(ctx, f, false, f.limit(), math.MaxInt, true)
		if err != nil || len(chosen.seqs) == 0 {
			return nil, wrapped("list heads", err)
		}
		w := s.whereByKey(f, chosen.seqs)
		var heads []Head
		err = s.read(ctx, func() { heads = nil }, func(rows *sql.Rows) error {
			h, err := scanHead(rows)
			heads = append(heads, h)
			return err
		}, headQuery+w.String()+` ORDER BY seq`+f.direction(), w.args...)
		if err != nil || len(heads) > 0 {
			return heads, wrapped("list heads", err)
		}
		f.After = chosen.seqs[len(chosen.seqs)-1] // all of these changed their status just now
	}
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

package letters

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
)

const (
	insert        = insertLetters + insertRow + "\n"
	insertLetters = "\nINSERT INTO spillway_dead_letters (" + insertColumns + ")\nVALUES "
	insertRow     = `(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	insertColumns = `identity, dead_letter_topic, id, origin_topic, handler, class, reason, type, stack_hash, description, first_failed_at, last_failed_at, stored_at,
	service, cause, size, arrived_redrive_id, seal_key, arrived_letter`
)

// How a database counts that a letter arrived again. From then on the transaction has the row to itself.
const (
	onConflict  = `ON CONFLICT (identity) DO UPDATE SET seen = spillway_dead_letters.seen + 1 RETURNING seq, seen`
	onDuplicate = `ON DUPLICATE KEY UPDATE seen = seen + 1`
)

const insertBody = `INSERT INTO spillway_letter_bodies (body, metadata, payload) VALUES (?, ?, ?)`

// store stores one letter, or notes that it arrived again.
func (s *Store) store(ctx context.Context, tx *sql.Tx, t tally, r *record, now time.Time) error {
	seq, fresh, err := s.insert(ctx, tx, r, now)
	if err != nil {
		return err
	}
	if !fresh {
		return s.again(ctx, tx, t, r, now)
	}
	if err := s.putBody(ctx, tx, seq, r); err != nil {
		return err
	}
	first, last := r.failed(now)
	t.moved(r.cause, "", StatusWaiting)
	t.arrived(r, seq, first, last)
	return nil
}

// insert returns the Seq of a letter that is new.
func (s *Store) insert(ctx context.Context, tx *sql.Tx, r *record, now time.Time) (seq int64, fresh bool, err error) {
	args := r.args(now, s.db)
	if s.statements.returning {
		var seen int
		err = tx.QueryRowContext(ctx, s.statements.insert, args...).Scan(&seq, &seen)
		return seq, seen == 1, err
	}
	result, err := tx.ExecContext(ctx, s.statements.insert, args...)
	if err != nil {
		return 0, false, err
	}
	n, err := result.RowsAffected() // 2 if there was a row, whatever the connection counts
	if err == nil {
		seq, err = result.LastInsertId()
	}
	return seq, n == 1, err
}

// putBody stores the metadata and payload of a letter. A large body goes through a prepared statement: a driver that
// writes values into the text of a statement may double them by escaping, and so make it too large.
func (s *Store) putBody(ctx context.Context, tx *sql.Tx, seq int64, r *record) (err error) {
	args := []any{seq, r.metadata, metadatacodec.Payload(r.msg.Payload)}
	if limit := s.db.Largest(); limit == 0 || 2*r.size() < limit {
		_, err = s.exec(ctx, tx, insertBody, args...)
		return err
	}
	put, err := tx.PrepareContext(ctx, s.db.Statement(insertBody))
	if err != nil {
		return err
	}
	_, err = put.ExecContext(ctx, args...)
	return errors.Join(err, put.Close())
}

// again notes that a letter arrived again. A letter that was redriven or discarded waits again then, behind all others,
// so that a drain that is running does not meet it twice. The holder of a lease loses it: what it is about to mark may
// be the redrive that failed again just now, if its redrive count was lost on the way. Better a letter too many, which
// the receiver absorbs, than one too few.
func (s *Store) again(ctx context.Context, tx *sql.Tx, t tally, r *record, now time.Time) error {
	var seq, body int64
	var before Status
	var cause string
	row := tx.QueryRowContext(ctx,
		s.db.Statement(`SELECT seq, `+bodyOf+`, status, cause FROM spillway_dead_letters WHERE identity = ?`), r.identity)
	if err := row.Scan(&seq, &body, &before, &cause); err != nil {
		return err
	}
	status, back := before, comesBack(before)
	if back {
		status = StatusWaiting
	}
	l := &r.letter
	first, last := r.failed(now)
	_, err := s.exec(ctx, tx, `UPDATE spillway_dead_letters SET dead_letter_topic = ?, class = ?, reason = ?, type = ?,
	stack_hash = ?, description = ?, cause = ?, size = ?, arrived_redrive_id = ?, arrived_letter = ?, first_failed_at = ?, last_failed_at = ?,
	token = '', leased_until = 0, status = ? WHERE identity = ?`,
		[]byte(r.topic), s.db.Text(l.Failure.Class.String()), s.db.Bytes(l.Failure.Reason), s.db.Bytes(l.Failure.Type),
		s.db.Bytes(l.Failure.StackHash), s.db.Bytes(l.Failure.Description), s.db.Text(r.cause),
		len(r.metadata)+len(r.msg.Payload),
		s.db.Bytes(redriveID(l)), s.db.Text(l.Redrive.Letter), first.UnixMicro(), last.UnixMicro(), s.db.Text(string(status)),
		r.identity)
	if err == nil {
		err = s.rewrite(ctx, tx, body, r)
	}
	if err == nil && back {
		if _, err = s.exec(ctx, tx, s.statements.toBack, r.identity); err == nil {
			row := tx.QueryRowContext(ctx, s.db.Statement(`SELECT seq FROM spillway_dead_letters WHERE identity = ?`),
				r.identity)
			err = row.Scan(&seq)
		}
	}
	if err != nil {
		return err
	}
	t.moved(cause, before, "")
	t.moved(r.cause, "", status)
	t.arrived(r, seq, first, last)
	return s.record(ctx, tx, EventArrivedAgain, Act{RedriveID: boundedtext.Text(redriveID(l), maxID)},
		subject{seq: seq, identity: r.identity, id: []byte(r.msg.UUID)})
}

// comesBack reports whether a letter of the status waits again if it arrives again.
func comesBack(s Status) bool {
	switch s {
	case StatusRedriven, StatusSucceeded, StatusFailedAgain, StatusDiscarded:
		return true
	}
	return false
}

// bodyOf is the key of a letter's body.
const bodyOf = `CASE WHEN moved_from > 0 THEN moved_from ELSE seq END`

// rewrite gives a letter the metadata that it arrived with. Its payload is the same, or it were another letter.
func (s *Store) rewrite(ctx context.Context, tx *sql.Tx, body int64, r *record) error {
	_, err := s.exec(ctx, tx, `UPDATE spillway_letter_bodies SET metadata = ? WHERE body = ?`, r.metadata, body)
	return err
}

// ownIdentity is the poison.Letter.Identity of a letter: of the number of its body and of the microsecond in which it
// arrived first, which never change. Another letter's cannot be guessed from one's own number or from what a message
// says. The identity of the row is made of the content, and changes when the letter is sealed or erased.
func ownIdentity(body, storedAt int64) string {
	b := binary.BigEndian.AppendUint64([]byte("spillway letter"), uint64(body))
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(b, uint64(storedAt)))
	return hex.EncodeToString(sum[:16])
}

// maxSlots is how many writers count at once without waiting for each other. Each slot is a row more for every cause.
const maxSlots = 16

// slots gives each writer of a process a slot of its own, as long as there are any. Two processes begin at different
// ones.
type slots struct {
	first int
	taken atomic.Uint32
}

func newSlots() *slots { return &slots{first: rand.IntN(maxSlots)} }

// take returns a slot, and what gives it back.
func (s *slots) take() (slot int, requeue func()) {
	for {
		taken := s.taken.Load()
		free := bits.TrailingZeros32(^taken)
		if free >= maxSlots {
			return rand.IntN(maxSlots), func() {}
		}
		if s.taken.CompareAndSwap(taken, taken|1<<free) {
			return (s.first + free) % maxSlots, func() { s.taken.And(^uint32(1 << free)) }
		}
	}
}

package letters

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
)

const insert = `
INSERT INTO spillway_dead_letters (identity, dead_letter_topic, id, metadata, payload,
	origin_topic, handler, class, reason, type, stack_hash, description, first_failed_at, last_failed_at, stored_at,
	service, cause, size, arrived_redrive_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
`

// How a database counts that a letter arrived again. From then on the transaction has the row to itself.
const (
	onConflict  = `ON CONFLICT (identity) DO UPDATE SET seen = spillway_dead_letters.seen + 1 RETURNING seq, seen`
	onDuplicate = `ON DUPLICATE KEY UPDATE seen = seen + 1`
)

// store stores one letter, or notes that it arrived again.
func (s *Store) store(ctx context.Context, tx *sql.Tx, r *record, now time.Time) error {
	_, fresh, err := s.insert(ctx, tx, r, now)
	if err != nil || fresh {
		return err
	}
	return s.again(ctx, tx, r, now)
}

// insert returns the Seq of a letter that is new. A large one goes through a prepared statement: a driver that writes values
// into the text of a statement may double them by escaping, and so make it too large.
func (s *Store) insert(ctx context.Context, tx *sql.Tx, r *record, now time.Time) (seq int64, fresh bool, err error) {
	args := r.args(now, s.db)
	if s.statements.returning {
		var seen int
		err = tx.QueryRowContext(ctx, s.statements.insert, args...).Scan(&seq, &seen)
		return seq, seen == 1, err
	}
	var result sql.Result
	if s.limit == 0 || 2*r.size() < s.limit {
		result, err = tx.ExecContext(ctx, s.statements.insert, args...)
	} else {
		var prepared *sql.Stmt
		if prepared, err = tx.PrepareContext(ctx, s.statements.insert); err != nil {
			return 0, false, err
		}
		defer func() { err = errors.Join(err, prepared.Close()) }()
		result, err = prepared.ExecContext(ctx, args...)
	}
	if err != nil {
		return 0, false, err
	}
	n, err := result.RowsAffected() // 2 if there was a row, whatever the connection counts
	if err == nil {
		seq, err = result.LastInsertId()
	}
	return seq, n == 1, err
}

// again notes that a letter arrived again. A letter that was redriven or discarded waits again then, behind all others, so
// that a drain that is running does not meet it twice. The holder of a lease loses it: what it is about to mark may be the
// redrive that failed again just now, if its redrive count was lost on the way. Better a letter too many, which the receiver
// absorbs, than one too few.
func (s *Store) again(ctx context.Context, tx *sql.Tx, r *record, now time.Time) error {
	var seq int64
	var status string
	row := tx.QueryRowContext(ctx, s.db.Statement(`SELECT seq, status FROM spillway_dead_letters WHERE identity = ?`), r.identity)
	if err := row.Scan(&seq, &status); err != nil {
		return err
	}
	back := comesBack(Status(status))
	if back {
		status = string(StatusWaiting)
	}
	l := &r.letter
	first, last := r.failed(now)
	_, err := s.exec(ctx, tx, `UPDATE spillway_dead_letters SET dead_letter_topic = ?, metadata = ?, class = ?, reason = ?, type = ?,
	stack_hash = ?, description = ?, cause = ?, size = ?, arrived_redrive_id = ?, first_failed_at = ?, last_failed_at = ?,
	token = '', leased_until = 0, status = ? WHERE identity = ?`,
		[]byte(r.topic), r.metadata, s.db.Text(l.Failure.Class.String()), s.db.Bytes(l.Failure.Reason), s.db.Bytes(l.Failure.Type),
		s.db.Bytes(l.Failure.StackHash), s.db.Bytes(l.Failure.Description), s.db.Text(r.cause), len(r.metadata)+len(r.msg.Payload),
		s.db.Bytes(redriveID(l)), first.UnixMicro(), last.UnixMicro(), s.db.Text(status), r.identity)
	if err == nil && back {
		if _, err = s.exec(ctx, tx, s.statements.toBack, seq); err == nil {
			row := tx.QueryRowContext(ctx, s.db.Statement(`SELECT seq FROM spillway_dead_letters WHERE identity = ?`), r.identity)
			err = row.Scan(&seq)
		}
	}
	if err != nil {
		return err
	}
	return s.record(ctx, tx, EventArrivedAgain, Act{RedriveID: boundedtext.Text(redriveID(l), maxID)}, subject{seq, r.identity, []byte(r.msg.UUID)})
}

// comesBack reports whether a letter of the status waits again if it arrives again.
func comesBack(s Status) bool {
	switch s {
	case StatusRedriven, StatusSucceeded, StatusFailedAgain, StatusDiscarded:
		return true
	}
	return false
}

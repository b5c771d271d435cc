package redrive

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// ErrLeaseLost is the error of marking a letter that is not the caller's any more: the lease expired and somebody else
// took the letter, or it was marked or released already, or it arrived again meanwhile and so waits for the next to take it.
var ErrLeaseLost = errors.New("redrive: the lease on the letter is lost: it was taken over, given back, or arrived again")

// Mark gives a letter that was taken its new status, records t.By, and ends the lease. StatusWaiting puts it back for
// the next drain. Without the lease it changes nothing and returns an error that is ErrLeaseLost.
func (s *Store) Mark(ctx context.Context, t Taken, status Status) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	return s.mark(ctx, t, status, Marked{By: t.By})
}

func (s *Store) mark(ctx context.Context, t Taken, status Status, m Marked) error {
	if err := status.valid(); err != nil {
		return err
	}
	return s.underLease(ctx, t, "mark", `UPDATE spillway_dead_letters
SET status = ?, token = '', leased_until = 0, marked_at = now(), marked_by = ?, marked_why = ?, redrive_id = ?`,
		string(status), s.dialect.text(m.By[:min(len(m.By), maxBy)]), m.Why, m.RedriveID)
}

const maxBy = 1 << 10 // bytes: a row must not grow larger than the database can send

// Release ends the leases of letters and leaves them as they were. Those whose lease is lost already are none of its
// business, and no error.
func (s *Store) Release(ctx context.Context, letters ...Taken) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if len(letters) == 0 {
		return nil
	}
	err := s.writeLetters(ctx, len(letters), func(tx *sql.Tx) error {
		for _, t := range letters {
			_, err := s.exec(ctx, tx, `UPDATE spillway_dead_letters SET token = '', leased_until = 0
WHERE seq = ? AND token = ? AND token <> ''`, t.Seq, s.dialect.text(t.Token))
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("redrive: release %d dead letter(s): %w", len(letters), err)
	}
	return nil
}

// postpone ends the lease and puts the letter behind all others.
func (s *Store) postpone(ctx context.Context, t Taken) error {
	err := s.write(ctx, func(tx *sql.Tx) error {
		if err := s.ifHeld(ctx, tx, t, `UPDATE spillway_dead_letters SET token = '', leased_until = 0`); err != nil {
			return err
		}
		_, err := s.exec(ctx, tx, s.dialect.toBack, t.Seq)
		return err
	})
	if err != nil {
		return fmt.Errorf("redrive: put back letter %d: %w", t.Seq, err)
	}
	return nil
}

// renew lets the leases of a token last from now on, and returns the letters among seqs that the token still holds.
func (s *Store) renew(ctx context.Context, token string, seqs []int64, lease time.Duration) (held map[int64]bool, err error) {
	keys, args := amongSeqs(seqs)
	args = append(args, s.dialect.text(token))
	err = s.writeLetters(ctx, len(seqs), func(tx *sql.Tx) error {
		held = make(map[int64]bool, len(seqs))
		_, err := s.exec(ctx, tx, `UPDATE spillway_dead_letters`+s.dialect.byKey+` SET leased_until = now() + ? WHERE `+keys+` AND token = ?`,
			append([]any{ticks(lease)}, args...)...)
		if err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, s.dialect.say(`SELECT seq FROM spillway_dead_letters WHERE `+keys+` AND token = ?`), args...)
		if err != nil {
			return err
		}
		return scanAll(rows, func(rows *sql.Rows) error {
			var seq int64
			err := rows.Scan(&seq)
			held[seq] = true
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("redrive: renew the leases of %d letter(s): %w", len(seqs), err)
	}
	return held, nil
}

// underLease runs an update of the one letter in a transaction of its own.
func (s *Store) underLease(ctx context.Context, t Taken, what, update string, args ...any) error {
	err := s.write(ctx, func(tx *sql.Tx) error { return s.ifHeld(ctx, tx, t, update, args...) })
	if err != nil {
		return fmt.Errorf("redrive: %s letter %d: %w", what, t.Seq, err)
	}
	return nil
}

// ifHeld runs an update of the one letter, if its token is still the one that was given out. The update must change
// something: MySQL counts no row that stays as it was.
func (s *Store) ifHeld(ctx context.Context, tx *sql.Tx, t Taken, update string, args ...any) error {
	result, err := s.exec(ctx, tx, update+` WHERE seq = ? AND token = ? AND token <> ''`,
		append(args[:len(args):len(args)], t.Seq, s.dialect.text(t.Token))...)
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && n == 0 {
		return ErrLeaseLost
	}
	return err
}

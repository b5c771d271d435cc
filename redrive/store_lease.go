package redrive

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// ErrLeaseLost is the error of marking a letter that is not the caller's any more: the lease expired and somebody else
// took the letter, or it was marked or released already, or it arrived again meanwhile and so waits for the next to take it.
var ErrLeaseLost = errors.New("redrive: the lease on the letter is lost: it was taken over, given back, or arrived again")

// Taken is a letter under a lease.
type Taken struct {
	Entry
	// Token proves the lease.
	Token string
	// Until is when others may take the letter. It stays the holder's until somebody does.
	Until time.Time
	// By goes on record with Mark. Who takes letters sets it; it may be empty.
	By string
}

// Take leases at most n letters, 1 to MaxLimit, that f chooses and nobody holds, in the order of Seq. Nobody else gets
// them before the lease is over, marked or released. One that somebody else is writing at this moment may be passed over.
// Filter.Limit is not used.
func (s *Store) Take(ctx context.Context, f Filter, lease time.Duration, n int) ([]Taken, error) {
	if err := f.validate("Filter"); err != nil {
		return nil, err
	}
	if lease <= 0 || n < 1 || n > MaxLimit {
		return nil, fmt.Errorf("redrive: take %d letters for %s: the number must be 1 to %d and the lease positive", n, lease, MaxLimit)
	}
	token := watermill.NewUUID()
	var taken []Taken
	err := s.write(ctx, func(tx *sql.Tx) error {
		taken = nil
		now := time.Now()
		until := now.Add(lease)
		w := f.where(s.dialect.text)
		w.and("leased_until <= ?", now.UnixMicro())
		if err := s.lease(ctx, tx, token, until, w, n); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, s.dialect.query(`SELECT `+entryColumns+`
FROM spillway_dead_letters WHERE token = ? AND token <> '' ORDER BY seq`), s.dialect.text(token))
		if err != nil {
			return err
		}
		return scanAll(rows, func(rows *sql.Rows) error {
			e, err := scanEntry(rows)
			taken = append(taken, Taken{Entry: e, Token: token, Until: until})
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("redrive: take dead letters: %w", err)
	}
	return taken, nil
}

// lease gives the token to at most n letters that w chooses.
func (s *Store) lease(ctx context.Context, tx *sql.Tx, token string, until time.Time, w *where, n int) error {
	chosen, args := `SELECT seq FROM spillway_dead_letters`+w.String()+` ORDER BY seq LIMIT ?`, append(w.args, n)
	if s.dialect.choose != "" {
		rows, err := tx.QueryContext(ctx, s.dialect.query(chosen+s.dialect.choose), args...)
		if err != nil {
			return err
		}
		args = nil
		err = scanAll(rows, func(rows *sql.Rows) error {
			var seq int64
			err := rows.Scan(&seq)
			args = append(args, seq)
			return err
		})
		if err != nil || len(args) == 0 {
			return err
		}
		chosen = "?" + strings.Repeat(",?", len(args)-1)
	}
	_, err := s.exec(ctx, tx, `UPDATE spillway_dead_letters SET token = ?, leased_until = ? WHERE seq `+
		fmt.Sprintf(s.dialect.among, chosen), append([]any{s.dialect.text(token), until.UnixMicro()}, args...)...)
	return err
}

// Mark gives a letter that was taken its new status, records t.By, and ends the lease. StatusWaiting puts it back for
// the next drain. Without the lease it changes nothing and returns an error that is ErrLeaseLost.
func (s *Store) Mark(ctx context.Context, t Taken, status Status) error {
	return s.mark(ctx, t, status, Marked{By: t.By})
}

func (s *Store) mark(ctx context.Context, t Taken, status Status, m Marked) error {
	if err := status.valid(); err != nil {
		return err
	}
	return s.underLease(ctx, t, "mark", `UPDATE spillway_dead_letters
SET status = ?, token = '', leased_until = 0, marked_at = ?, marked_by = ?, marked_why = ?, redrive_id = ?`,
		string(status), time.Now().UnixMicro(), s.dialect.text(m.By), m.Why, m.RedriveID)
}

// Release ends the leases of letters and leaves them as they were. Those whose lease is lost already are none of its
// business, and no error.
func (s *Store) Release(ctx context.Context, letters ...Taken) error {
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

// extend lets the lease last from now on, if it is not lost.
func (s *Store) extend(ctx context.Context, t *Taken, lease time.Duration) error {
	until := time.Now().Add(lease)
	err := s.underLease(ctx, *t, "keep", `UPDATE spillway_dead_letters SET leased_until = ?`, until.UnixMicro())
	if err == nil {
		t.Until = until
	}
	return err
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

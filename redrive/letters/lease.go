package letters

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/database"
)

// Taken is a letter under a lease. Its holder calls Mark, Release or Postpone, or Renew as long as it works on the
// letter.
type Taken struct {
	Letter
	// Token proves the lease.
	Token string
	// Until is when others may take the letter, by this process's clock and a little early. The lease itself goes by the
	// database's clock. The letter stays with its holder until another takes it.
	Until time.Time
}

// ErrLeaseLost is the error of changing a letter without holding its lease. One of these happened:
//   - the lease expired, and another caller took the letter;
//   - the letter was marked, released or postponed already;
//   - the letter arrived again, and so waits for the next caller to take it.
var ErrLeaseLost = errors.New("letters: the lease on the letter is lost: it was taken over, given back, or arrived again")

// Mark gives a leased letter its new status, records act, and ends the lease. StatusWaiting puts the letter back for
// the next drain. Without the lease Mark changes nothing and returns an error that is ErrLeaseLost. Letter.Marked keeps
// 255 bytes of act.Reason; the event keeps all of it.
func (s *Store) Mark(ctx context.Context, t Taken, status Status, act Act) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	marked, err := s.mark(ctx, status, act, []Taken{t})
	if err == nil && len(marked) == 0 {
		err = ErrLeaseLost
	}
	if err != nil {
		return fmt.Errorf("letters: mark letter %d: %w", t.Seq, err)
	}
	return nil
}

// MarkEach is Mark for several letters in one transaction. It returns those that were marked: the leases of the others
// are lost. After an error none is marked.
func (s *Store) MarkEach(ctx context.Context, status Status, act Act, taken ...Taken) (marked []Taken, err error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if len(taken) > MaxLimit {
		return nil, fmt.Errorf("letters: mark %d letters: at most %d are possible: use several calls", len(taken), MaxLimit)
	}
	if marked, err = s.mark(ctx, status, act, taken); err != nil {
		return nil, fmt.Errorf("letters: mark %d letter(s): %w", len(taken), err)
	}
	return marked, nil
}

func (s *Store) mark(ctx context.Context, status Status, act Act, taken []Taken) (marked []Taken, err error) {
	if err := status.settable(); err != nil {
		return nil, err
	}
	if err := act.validate(); err != nil {
		return nil, err
	}
	if len(taken) == 0 {
		return nil, nil
	}
	err = s.writeLetters(ctx, len(taken), func(tx *sql.Tx, t tally) (err error) {
		if marked, err = s.held(ctx, tx, taken); err != nil || len(marked) == 0 {
			return err
		}
		keys, args := amongSeqs(seqsOf(marked))
		_, err = s.exec(ctx, tx, `UPDATE spillway_dead_letters`+s.statements.byKey+`
SET status = ?, token = '', leased_until = 0, marked_at = now_us(), marked_by = ?, marked_why = ?, redrive_id = ? WHERE `+keys,
			append(append([]any{s.db.Text(string(status))}, s.marks(act)...), args...)...)
		if err != nil {
			return err
		}
		for _, m := range marked {
			if m.Cause != "" { // of earlier versions letters are counted with their cause
				t.moved(m.Cause, m.Status, status)
			}
		}
		return s.record(ctx, tx, status.event(), act, subjectsOf(marked)...)
	})
	return marked, err
}

// held returns those letters whose leases are held, and locks them. They are as they were when they were leased, but
// for the cause of a letter of an earlier version: whatever else changes a letter ends its lease.
func (s *Store) held(ctx context.Context, tx *sql.Tx, taken []Taken) (held []Taken, err error) {
	keys, args := amongSeqs(seqsOf(taken))
	type row struct{ token, cause string }
	found := make(map[int64]row, len(taken))
	rows, err := tx.QueryContext(ctx,
		s.db.Statement(`SELECT seq, token, cause FROM spillway_dead_letters`+s.statements.byKey+` WHERE `+keys+
			` AND token <> '' ORDER BY seq`+s.lock()), args...)
	if err != nil {
		return nil, err
	}
	err = database.Each(rows, func(rows *sql.Rows) error {
		var seq int64
		var r row
		err := rows.Scan(&seq, &r.token, &r.cause)
		found[seq] = r
		return err
	})
	for _, t := range taken {
		if r := found[t.Seq]; r.token != "" && r.token == t.Token {
			t.Cause = r.cause
			held = append(held, t)
			delete(found, t.Seq) // once, if it is listed twice
		}
	}
	return held, err
}

// lock ends a query whose rows this transaction is about to change.
func (s *Store) lock() string { return strings.TrimSuffix(s.db.SkipLocked(), " SKIP LOCKED") }

// ErrNotFound is the error of a letter that is not there, or of another service.
var ErrNotFound = errors.New("there is no such letter: it was purged, belongs to another service, or has another Seq now")

func seqsOf(taken []Taken) []int64 {
	seqs := make([]int64, len(taken))
	for i, t := range taken {
		seqs[i] = t.Seq
	}
	return seqs
}

const maxWhy = 255 // bytes: the column of MySQL

// subjectsOf is what the record says of letters under a lease. They are as they were when they were leased: whatever
// changes them ends the lease.
func subjectsOf(taken []Taken) []subject {
	about := make([]subject, len(taken))
	for i, t := range taken {
		about[i] = subject{seq: t.Seq, identity: t.identity, id: []byte(t.Original.UUID)}
	}
	return about
}

// Release ends the leases of letters and leaves the letters as they were. A letter whose lease is already lost is no
// error.
func (s *Store) Release(ctx context.Context, letters ...Taken) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if len(letters) == 0 {
		return nil
	}
	err := s.writeLetters(ctx, len(letters), func(tx *sql.Tx, _ tally) error {
		for _, t := range letters {
			_, err := s.exec(ctx, tx, `UPDATE spillway_dead_letters SET token = '', leased_until = 0`+byToken, t.Seq,
				s.db.Bytes(t.Token))
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("letters: release %d letter(s): %w", len(letters), err)
	}
	return nil
}

// Postpone ends the lease of a letter and puts the letter behind all others, with a new Seq. Without the lease it
// changes nothing and returns an error that is ErrLeaseLost.
func (s *Store) Postpone(ctx context.Context, t Taken) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	return s.ifHeld(ctx, t, "postpone", s.statements.toBack,
		`UPDATE spillway_dead_letters SET token = '', leased_until = 0`)
}

// Renew lets the leases of letters last for the given time from now on. It returns the letters whose leases are still
// held, with their new Until. It must not be called with letters of more than one Take or Lease.
func (s *Store) Renew(ctx context.Context, lease time.Duration, letters ...Taken) (still []Taken, err error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if len(letters) == 0 || letters[0].Token == "" {
		return nil, nil
	}
	if lease <= 0 {
		return nil, fmt.Errorf("letters: renew for %s: the time must be positive", lease)
	}
	seqs := seqsOf(letters)
	for _, t := range letters {
		if t.Token != letters[0].Token {
			return nil, errors.New("letters: renew leases of more than one Take: use a call for each")
		}
	}
	keys, args := amongSeqs(seqs)
	args = append(args, s.db.Bytes(letters[0].Token))
	until := time.Now().Add(lease)
	var kept []int64
	err = s.writeLetters(ctx, len(seqs), func(tx *sql.Tx, _ tally) error {
		_, err := s.exec(ctx, tx,
			`UPDATE spillway_dead_letters`+s.statements.byKey+` SET leased_until = now_us() + ? WHERE `+keys+` AND token = ?`,
			append([]any{ticks(lease)}, args...)...)
		if err == nil {
			kept, err = s.seqs(ctx, tx, `SELECT seq FROM spillway_dead_letters WHERE `+keys+` AND token = ?`, args...)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("letters: renew the leases of %d letter(s): %w", len(seqs), err)
	}
	for _, t := range letters {
		if slices.Contains(kept, t.Seq) {
			t.Until = until
			still = append(still, t)
		}
	}
	return still, nil
}

// byToken is the condition that a letter's token is the one that was given out.
const byToken = ` WHERE seq = ? AND token = ? AND token <> ''`

// ifHeld runs an update of the one letter if its lease is held, and then another statement for its identity unless that
// is empty. The update must change something: MySQL counts no row that stays as it was.
func (s *Store) ifHeld(ctx context.Context, t Taken, what, then, update string, args ...any) error {
	err := s.write(ctx, func(tx *sql.Tx) error {
		result, err := s.exec(ctx, tx, update+byToken, append(slices.Clip(args), t.Seq, s.db.Bytes(t.Token))...)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if err == nil && n == 0 {
			return ErrLeaseLost
		}
		if err == nil && then != "" {
			_, err = s.exec(ctx, tx, then, t.identity)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("letters: %s letter %d: %w", what, t.Seq, err)
	}
	return nil
}

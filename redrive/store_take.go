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

// Taken is a letter under a lease.
type Taken struct {
	Entry
	// Token proves the lease.
	Token string
	// Until is when others may take the letter, by this process's clock and a little early: the lease itself goes by the
	// database's clock. The letter stays the holder's until another takes it.
	Until time.Time
	// By goes on record with Mark. The caller of Take sets it; it may be empty.
	By string
}

// Take leases at most n letters, 1 to MaxLimit, that f chooses and that have no lease, in the order of Seq. No other Take
// gets them before the lease is over, marked or released. Letters that another transaction is writing at this moment are
// passed over. StoreConfig.MaxRead may make it fewer than n: only a Take of none says that there are no more. Filter.Limit
// is not used.
func (s *Store) Take(ctx context.Context, f Filter, lease time.Duration, n int) ([]Taken, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if err := f.validate("Filter"); err != nil {
		return nil, err
	}
	if lease <= 0 || n < 1 || n > MaxLimit {
		return nil, fmt.Errorf("redrive: take %d letters for %s: the number must be 1 to %d and the lease positive", n, lease, MaxLimit)
	}
	var taken []Taken
	token, left := watermill.NewUUID(), s.maxRead
	for len(taken) < n && left > 0 {
		chosen, bytes, err := s.choose(ctx, s.free(f), n-len(taken), left, len(taken) == 0)
		if err == nil && len(chosen) == 0 {
			break
		}
		var more []Taken
		if err == nil {
			f.After, left = chosen[len(chosen)-1], left-bytes
			more, err = s.lease(ctx, f, chosen, token, lease)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("redrive: take dead letters: %w", err), s.giveUp(ctx, taken))
		}
		taken = append(taken, more...)
	}
	return taken, nil
}

// choose returns the first n letters that w chooses, as many as together have at most the given bytes, or else the first
// alone if one is asked for. It reads no payload. It takes no locks: on MariaDB a locking read locks every row that it
// looks at, so that others pass over letters that no one takes. It is no write either: on SQLite there is one writer at a
// time.
func (s *Store) choose(ctx context.Context, w *where, n, most int, one bool) (chosen []int64, bytes int, err error) {
	err = s.read(ctx, func() { chosen, bytes = nil, 0 }, func(rows *sql.Rows) error {
		var seq int64
		var size int
		if err := rows.Scan(&seq, &size); err != nil {
			return err
		}
		if bytes+size > most && !(one && len(chosen) == 0) {
			return errFull // SQLite would read on, through the payloads, to the next size
		}
		chosen, bytes = append(chosen, seq), bytes+size
		return nil
	}, `SELECT seq, CASE WHEN size >= 0 THEN size ELSE LENGTH(metadata) + COALESCE(LENGTH(payload), 0) END
FROM spillway_dead_letters`+w.String()+` ORDER BY seq LIMIT ?`, append(w.args, n)...)
	if errors.Is(err, errFull) {
		err = nil
	}
	return chosen, bytes, err
}

var errFull = errors.New("no more letters fit")

// free are the conditions for letters that f chooses and that have no lease.
func (s *Store) free(f Filter) *where {
	w := s.where(f)
	w.and("leased_until <= now()")
	return w
}

func (s *Store) freeByKey(f Filter, seqs []int64) *where {
	w := s.whereByKey(f, seqs)
	w.and("leased_until <= now()")
	return w
}

// lease gives the token to those of the chosen letters that f still chooses, that still have no lease, and that no other
// transaction is writing. It looks them up by their key, so that it locks no others.
func (s *Store) lease(ctx context.Context, f Filter, chosen []int64, token string, lease time.Duration) ([]Taken, error) {
	f.After, f.MaxSeq = 0, 0 // the keys say as much
	until := time.Now().Add(lease)
	err := s.write(ctx, func(tx *sql.Tx) error {
		w := s.freeByKey(f, chosen)
		if s.dialect.lock != "" {
			locked, err := s.lock(ctx, tx, w)
			if err != nil || len(locked) == 0 {
				return err
			}
			w = s.freeByKey(f, locked)
		}
		_, err := s.exec(ctx, tx, `UPDATE spillway_dead_letters`+s.dialect.byKey+` SET token = ?, leased_until = now() + ?`+w.String(),
			append([]any{s.dialect.text(token), ticks(lease)}, w.args...)...)
		return err
	})
	if err != nil {
		return nil, err
	}
	taken, err := s.held(ctx, token, chosen)
	if err != nil {
		return nil, errors.Join(err, s.giveUpToken(ctx, token, chosen))
	}
	for i := range taken {
		taken[i].Until = until
	}
	return taken, nil
}

// ticks is a lease in microseconds, and a millisecond more: SQLite's clock stands still for as long.
func ticks(lease time.Duration) int64 { return lease.Microseconds() + 1000 }

// lock locks letters in the order of their keys and passes over those that others have locked.
func (s *Store) lock(ctx context.Context, tx *sql.Tx, w *where) (locked []int64, err error) {
	rows, err := tx.QueryContext(ctx, s.dialect.say(`SELECT seq FROM spillway_dead_letters`+s.dialect.byKey+w.String()+` ORDER BY seq`+s.dialect.lock), w.args...)
	if err != nil {
		return nil, err
	}
	err = scanAll(rows, func(rows *sql.Rows) error {
		var seq int64
		err := rows.Scan(&seq)
		locked = append(locked, seq)
		return err
	})
	return locked, err
}

// held reads those of the letters that the token holds.
func (s *Store) held(ctx context.Context, token string, seqs []int64) (taken []Taken, err error) {
	keys, args := amongSeqs(seqs)
	entries, err := s.entries(ctx, `SELECT `+entryColumns+` FROM spillway_dead_letters WHERE `+keys+` AND token = ? ORDER BY seq`,
		append(args, s.dialect.text(token))...)
	for _, e := range entries {
		taken = append(taken, Taken{Entry: e, Token: token})
	}
	return taken, err
}

// giveUp releases letters after an error. The context may have ended with it.
func (s *Store) giveUp(ctx context.Context, taken []Taken) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxWrite)
	defer cancel()
	return s.Release(ctx, taken...)
}

func (s *Store) giveUpToken(ctx context.Context, token string, seqs []int64) error {
	taken := make([]Taken, len(seqs))
	for i, seq := range seqs {
		taken[i] = Taken{Entry: Entry{Seq: seq}, Token: token}
	}
	return s.giveUp(ctx, taken)
}

// amongSeqs is the condition to be one of the letters.
func amongSeqs(seqs []int64) (condition string, args []any) {
	args = make([]any, len(seqs))
	for i, seq := range seqs {
		args[i] = seq
	}
	return `seq IN (?` + strings.Repeat(",?", len(seqs)-1) + `)`, args
}

package letters

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

// choice is letters that a filter chooses.
type choice struct {
	seqs  []int64
	bytes int
}

// choose returns the first n letters that f chooses, free ones if asked for, as many as together have at most the given
// bytes, or else the first alone if one is asked for. It reads no body. It takes no locks: on MariaDB a locking read
// locks every row that it looks at, so that others pass over letters that no one takes. It is no write either: on
// SQLite there is one writer at a time.
func (s *Store) choose(ctx context.Context, f Filter, free bool, n, most int, one bool) (chosen choice, err error) {
	if len(f.Metadata) > 0 {
		return s.chooseByMetadata(ctx, f, free, n, most, one)
	}
	r, err := s.routeOf(ctx, f)
	if err != nil {
		return choice{}, err
	}
	size := `size`
	if most == math.MaxInt { // an index alone may know the letters
		size = `0`
	}
	err = s.each(ctx, r, func(f Filter) (more bool, err error) {
		w := s.where(f)
		if free {
			w = s.free(f)
		}
		before := chosen
		err = s.readPlanned(ctx, func() {
			chosen = choice{slices.Clip(before.seqs), before.bytes}
		}, func(rows *sql.Rows) error {
			var seq int64
			var size int
			if err := rows.Scan(&seq, &size); err != nil {
				return err
			}
			if !chosen.add(seq, size, most, one) {
				return errFull
			}
			return nil
		}, `SELECT seq, `+size+`
FROM spillway_dead_letters`+r.hint+w.String()+` ORDER BY `+r.order+` LIMIT ?`, append(w.args, n-len(before.seqs))...)
		return err == nil && len(chosen.seqs) < n, err
	})
	if errors.Is(err, errFull) {
		err = nil
	}
	return chosen, err
}

func (s *Store) chooseByMetadata(ctx context.Context, f Filter, free bool, n, most int,
	one bool) (chosen choice, err error) {
	err = s.withMetadata(ctx, f, free, func(c candidate) bool {
		return chosen.add(c.seq, c.size, most, one) && len(chosen.seqs) < n
	})
	return chosen, err
}

// add adds a letter unless it does not fit.
func (c *choice) add(seq int64, size, most int, one bool) (added bool) {
	if c.bytes+size > most && !(one && len(c.seqs) == 0) {
		return false
	}
	c.seqs, c.bytes = append(c.seqs, seq), c.bytes+size
	return true
}

var errFull = errors.New("no more letters fit")

// ticks is a lease in microseconds, and a millisecond more: SQLite's clock stands still for as long.
func ticks(lease time.Duration) int64 { return lease.Microseconds() + 1000 }

// seqs reads the letters that a query within a transaction returns.
func (s *Store) seqs(ctx context.Context, tx *sql.Tx, query string, args ...any) (seqs []int64, err error) {
	rows, err := tx.QueryContext(ctx, s.db.Statement(query), args...)
	if err != nil {
		return nil, err
	}
	err = database.Each(rows, func(rows *sql.Rows) error {
		var seq int64
		err := rows.Scan(&seq)
		seqs = append(seqs, seq)
		return err
	})
	return seqs, err
}

// among is the condition to be one of the letters.
func (s *Store) among(seqs []int64) (condition string, args []any) { return s.db.Among("seq", seqs) }

package letters

import (
	"context"
	"database/sql"
	"math"
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
	err = s.scan(ctx, f, free, most < math.MaxInt, n, func(c candidate) (more bool) {
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

// ticks is a lease in microseconds, and a millisecond more: SQLite's clock stands still for as long.
func ticks(lease time.Duration) int64 { return lease.Microseconds() + 1000 }

// seqs reads the letters that a query within a transaction returns.
func (s *Store) seqs(ctx context.Context, tx *sql.Tx, query string, args ...any) (seqs []int64, err error) {
	err = database.Each(ctx, tx, database.Into(&seqs), s.db.Statement(query), args...)
	return seqs, err
}

// among is the condition to be one of the letters.
func (s *Store) among(seqs []int64) (condition string, args []any) { return s.db.Among("seq", seqs) }

const (
	// window is how many Seqs one statement reads at most if no index answers. A scan of a large table is many short
	// statements: each has its own time limit, and the scan ends with its context.
	window = 50_000
	// bodyWindow is the same if the bodies of letters are read.
	bodyWindow = 5_000
	// fewLetters is how many letters of some causes are looked up and sorted at once.
	fewLetters = 5_000
)

// route is how letters are found: the conditions, and what comes behind the name of the table and after ORDER BY.
type route struct {
	f         Filter
	nothing   bool   // f chooses no letter
	hint      string // the index to use
	order     string // "seq", or what keeps a database from using an index for the order; with DESC for the newest first
	inWindows bool
}

// routeOf decides how letters that f chooses are found. The numbers of the causes say how many there are.
func (s *Store) routeOf(ctx context.Context, f Filter) (r route, err error) {
	defer func() {
		r.order += f.direction()
	}()
	r = route{f: f, order: "seq"}
	if len(f.IDs) > 0 || f.Leased { // by the index of ids, or where the claims are
		r.order = "seq + 0"
		return r, nil
	}
	if f.byCause() {
		s.compared(ctx)
		causes, letters, err := s.causes(ctx, f)
		if err != nil {
			return r, err
		}
		switch {
		case len(causes) == 0:
			r.nothing = true
			return r, nil
		case len(causes) <= maxCauses:
			r.f = f.ofCauses(causes)
			if letters <= fewLetters {
				r.hint, r.order = s.statements.byCause, "seq + 0"
				return r, nil
			}
		}
	}
	r.inWindows = true
	return r, nil
}

// each calls read with a filter for one statement after the other, in the order of Seq or the other way round, until
// read returns false.
func (s *Store) each(ctx context.Context, r route, read func(Filter) (more bool, err error)) error {
	if r.nothing {
		return nil
	}
	if !r.inWindows {
		_, err := read(r.f)
		return err
	}
	first, last, err := s.bounds(ctx)
	if err != nil {
		return err
	}
	width := int64(window)
	if r.f.Payload != "" || len(r.f.Metadata) > 0 {
		width = bodyWindow
	}
	if r.f.MaxSeq > 0 {
		last = min(last, r.f.MaxSeq)
	}
	if r.f.NewestFirst {
		if r.f.After > 0 {
			last = min(last, r.f.After-1)
		}
		for upTo := last; upTo >= first && upTo > 0; upTo -= width {
			if more, err := readWindow(ctx, r.f, max(upTo-width, first-1), upTo, read); err != nil || !more {
				return err
			}
		}
		return nil
	}
	for after := max(r.f.After, first-1); after < last; after += width {
		if more, err := readWindow(ctx, r.f, after, min(after+width, last), read); err != nil || !more {
			return err
		}
	}
	return nil
}

// readWindow reads the letters behind after and up to upTo. The order is that of the route.
func readWindow(ctx context.Context, f Filter, after, upTo int64,
	read func(Filter) (more bool, err error)) (more bool, err error) {
	f.NewestFirst, f.After, f.MaxSeq = false, after, upTo
	if more, err = read(f); err == nil {
		err = ctx.Err()
	}
	return more, err
}

// bounds are the least and the greatest Seq in the table.
func (s *Store) bounds(ctx context.Context) (first, last int64, err error) {
	err = s.read(ctx, func() {}, func(rows *sql.Rows) error { return rows.Scan(&first, &last) },
		`SELECT COALESCE((SELECT MIN(seq) FROM spillway_dead_letters), 0), COALESCE((SELECT MAX(seq) FROM spillway_dead_letters), 0)`)
	return first, last, err
}

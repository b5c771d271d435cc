package letters

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

// claim is letters that a drain or a campaign has in hand.
type claim = inside.Claim[Letter]

// ErrLeaseLost is the error of changing a letter without holding its lease. One of these happened:
//   - the lease expired, and another took the letter;
//   - the letter was settled, released or postponed already;
//   - the letter arrived again, and so waits for the next one to take it.
var ErrLeaseLost = errors.New("letters: the lease on the letter is lost: it was taken over, given back, or arrived again")

// Free returns the Seqs of the first n letters, 1 to MaxLimit, that f chooses and that have no lease.
// Letters that another transaction is writing are among them. Their size may make it fewer than n.
func (s inner) Free(ctx context.Context, f Filter, n int) ([]int64, error) {
	f, any := f.redrivable()
	if !any {
		return nil, nil
	}
	chosen, err := s.choose(ctx, f, true, n, s.maxRead, true)
	return chosen.seqs, wrapped("look for free letters", err)
}

// Claim leases those of the letters, at most MaxLimit, that f still chooses, that have no lease, and that
// no other transaction is writing at this moment. It reads them into memory: Free returns as many as may be.
func (s inner) Claim(ctx context.Context, f Filter, seqs []int64, lease time.Duration) (claim, error) {
	f, any := f.redrivable()
	if len(seqs) == 0 || !any {
		return claim{}, nil
	}
	var c claim
	err := s.write(ctx, func(tx *sql.Tx) (err error) { c, _, err = s.Lease(ctx, tx, f, seqs, lease); return err })
	if err != nil {
		return claim{}, wrapped("claim", err)
	}
	return s.Leased(ctx, c, seqs)
}

// Lease is Claim within a transaction on the Store's database, of letters that f chooses by their statuses alone. It
// returns those that it leased. Leased reads them.
func (s inner) Lease(ctx context.Context, tx *sql.Tx, f Filter, seqs []int64,
	lease time.Duration) (c claim, leased []int64, err error) {
	f.After, f.MaxSeq = 0, 0 // the keys say as much
	c = claim{Token: watermill.NewUUID(), Until: time.Now().Add(lease)}
	leased, err = s.leaseWithin(ctx, tx, f, seqs, c.Token, lease)
	return c, leased, err
}

// Leased reads the letters that Lease leased: that may be much, and keeps no row locked. After an error their leases
// are over.
func (s inner) Leased(ctx context.Context, c claim, seqs []int64) (claim, error) {
	keys, args := s.among(seqs)
	err := s.numbered(ctx)
	var found []Letter
	if err == nil {
		found, err = s.letters(ctx, letterQuery+` WHERE `+keys+` AND token = ? ORDER BY seq`,
			append(args, s.db.Bytes(c.Token))...)
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxWrite)
		defer cancel()
		released := s.write(ctx, func(tx *sql.Tx) error { return s.releaseWithin(ctx, tx, seqs, c.Token) })
		return claim{}, wrapped("claim", errors.Join(err, released))
	}
	c.Letters = make([]*Letter, len(found))
	for i := range found {
		c.Letters[i] = &found[i]
	}
	return c, nil
}

// leaseWithin looks the letters up by their key, so that it locks no others, in the order of their keys and without
// those that others have locked.
func (s *Store) leaseWithin(ctx context.Context, tx *sql.Tx, f Filter, chosen []int64, token string,
	lease time.Duration) (free []int64, err error) {
	w := s.freeByKey(f, chosen)
	free, err = s.seqs(ctx, tx,
		`SELECT seq FROM spillway_dead_letters`+s.statements.byKey+w.String()+` ORDER BY seq`+s.db.SkipLocked(), w.args...)
	if err != nil || len(free) == 0 {
		return nil, err
	}
	w = s.freeByKey(f, free)
	_, err = s.exec(ctx, tx,
		`UPDATE spillway_dead_letters`+s.statements.byKey+` SET token = ?, leased_until = now_us() + ?, leased_by = ?`+
			w.String(),
		append([]any{s.db.Bytes(token), ticks(lease), s.db.Bytes(s.node)}, w.args...)...)
	if err != nil {
		return nil, err
	}
	return free, s.noteClaim(ctx, tx, token, lease, slices.Min(free), slices.Max(free))
}

// noteClaim notes where leased letters are, and forgets the claims that are over. It waits for no other claim.
func (s *Store) noteClaim(ctx context.Context, tx *sql.Tx, token string, lease time.Duration, first, last int64) error {
	var over []string
	err := database.Each(ctx, tx, database.Into(&over), s.db.Statement(
		`SELECT token FROM spillway_letter_claims WHERE leased_until <= now_us()`+s.db.SkipLocked()))
	if err == nil && len(over) > 0 {
		w := new(where)
		anyIn(w, "token", over, s.db.Bytes)
		_, err = s.exec(ctx, tx, `DELETE FROM spillway_letter_claims`+w.String(), w.args...)
	}
	if err == nil {
		_, err = s.exec(ctx, tx,
			`INSERT INTO spillway_letter_claims (token, leased_until, first_seq, last_seq) VALUES (?, now_us() + ?, ?, ?)`,
			s.db.Bytes(token), ticks(lease), first, last)
	}
	return err
}

// lock ends a query whose rows this transaction is about to change.
func (s *Store) lock() string { return strings.TrimSuffix(s.db.SkipLocked(), " SKIP LOCKED") }

func seqsOf(letters []*Letter) []int64 {
	seqs := make([]int64, len(letters))
	for i, l := range letters {
		seqs[i] = l.Seq
	}
	return seqs
}

func subjectOf(l Letter) subject {
	return subject{seq: l.Seq, identity: l.identity, id: []byte(l.Original.UUID)}
}

// Release ends the leases of letters and leaves the letters as they were. A lease that is lost is no error.
func (s inner) Release(ctx context.Context, c claim) error {
	_, err := s.Settle(ctx, "", Act{}, nil, c)
	return err
}

// Postpone ends the lease of the one letter of c and puts the letter behind all others, with a new Seq. Without the
// lease it changes nothing, and the error is ErrLeaseLost.
func (s inner) Postpone(ctx context.Context, c claim) error {
	l := c.Letters[0]
	err := s.write(ctx, func(tx *sql.Tx) error {
		// it changes something: MySQL counts no row that stays as it was
		result, err := s.exec(ctx, tx, `UPDATE spillway_dead_letters SET token = '', leased_until = 0
WHERE seq = ? AND token = ? AND token <> ''`, l.Seq, s.db.Bytes(c.Token))
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if err == nil && n == 0 {
			return ErrLeaseLost
		}
		if err == nil {
			_, err = s.exec(ctx, tx, s.statements.toBack, l.identity)
		}
		return err
	})
	return wrapped(fmt.Sprintf("postpone letter %d", l.Seq), err)
}

// Renew lets the lease last for the given time from now on. It returns the letters that still have it.
func (s inner) Renew(ctx context.Context, lease time.Duration, c claim) (still claim, err error) {
	if len(c.Letters) == 0 || c.Token == "" {
		return claim{}, nil
	}
	keys, args := s.among(seqsOf(c.Letters))
	args = append(args, s.db.Bytes(c.Token))
	until := time.Now().Add(lease)
	var kept []int64
	err = s.writeLetters(ctx, len(c.Letters), func(tx *sql.Tx, _ tally) error {
		_, err := s.exec(ctx, tx,
			`UPDATE spillway_dead_letters`+s.statements.byKey+` SET leased_until = now_us() + ? WHERE `+keys+` AND token = ?`,
			append([]any{ticks(lease)}, args...)...)
		if err == nil {
			_, err = s.exec(ctx, tx, `UPDATE spillway_letter_claims SET leased_until = now_us() + ? WHERE token = ?`,
				ticks(lease), s.db.Bytes(c.Token))
		}
		if err == nil {
			kept, err = s.seqs(ctx, tx, `SELECT seq FROM spillway_dead_letters WHERE `+keys+` AND token = ?`, args...)
		}
		return err
	})
	if err != nil {
		return claim{}, wrapped(fmt.Sprintf("renew the leases of %d letter(s)", len(c.Letters)), err)
	}
	still = claim{Token: c.Token, Until: until}
	slices.Sort(kept)
	for _, l := range c.Letters {
		if _, is := slices.BinarySearch(kept, l.Seq); is {
			still.Letters = append(still.Letters, l)
		}
	}
	return still, nil
}

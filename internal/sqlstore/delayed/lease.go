package delayed

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

// maxBytes is about what a batch holds in memory. A larger message is a batch of its own.
const maxBytes = 16 << 20

// batch is what one take found.
type batch struct {
	token string
	rows  []taken // in the order in which they are due
	// more tells that the batch was cut, so that there may be more to take at once.
	more bool
}

// taken is a row under a lease.
type taken struct {
	seq      int64
	topic    string
	msg      *message.Message
	damage   error // why there is no msg
	failures int
	late     time.Duration // at readAt
	readAt   time.Time
}

// next returns how long it is until a row behind a place can be taken, 0 or less where one can be, and where that row
// is. ok is false when there is none before the horizon.
func (s *Store) next(ctx context.Context, from place,
	horizon time.Duration) (in time.Duration, at place, ok bool, err error) {
	args := append(append([]any{[]byte(s.service)}, s.dialect.after(from)...), horizon.Microseconds())
	err = s.rows(ctx, func() { ok = false }, func(rows *sql.Rows) error {
		var us int64
		err := rows.Scan(&us, &at.ready, &at.due, &at.seq)
		in, ok = microseconds(us), true
		return err
	}, s.statements.next, args...)
	return in, at, ok, err
}

// here is the place that is due now.
func (s *Store) here(ctx context.Context) (at place, err error) {
	at = front
	err = s.rows(ctx, func() {}, func(rows *sql.Rows) error { return rows.Scan(&at.ready) }, s.statements.now)
	return at, err
}

// take leases at most n rows that are due and come behind a place.
func (s *Store) take(ctx context.Context, n int, lease time.Duration, from place) (batch, error) {
	return s.lease(ctx, lease, func(tx *sql.Tx) (choice, error) { return s.choose(ctx, tx, n, from) })
}

// takeAround leases at most n rows that are due, and one each of topics that may be tried again, and leaves alone those
// of topics that refuse.
func (s *Store) takeAround(ctx context.Context, n int, lease time.Duration, p *pass, t topics,
	now time.Time) (batch, error) {
	found, err := s.around(ctx, n, p, t, now)
	if err != nil || len(found.seqs) == 0 {
		return batch{}, err
	}
	return s.lease(ctx, lease, func(tx *sql.Tx) (choice, error) { return s.lockFound(ctx, tx, found) })
}

// lease takes what is chosen, in one transaction, and reads it.
func (s *Store) lease(ctx context.Context, lease time.Duration, choose func(*sql.Tx) (choice, error)) (batch, error) {
	b := batch{token: watermill.NewUUID()}
	var c choice
	err := s.inTransaction(ctx, func(tx *sql.Tx) (err error) {
		if s.dialect.lock != "" {
			if _, err := tx.ExecContext(ctx, s.dialect.lock); err != nil {
				return err
			}
		}
		if c, err = choose(tx); err != nil {
			return err
		}
		_, err = s.execAmong(ctx, tx, s.statements.leaseIn, c.seqs, b.token, lease.Microseconds())
		return err
	})
	if err != nil {
		return b, err
	}
	b.more = c.more
	b.rows, err = s.readTaken(ctx, b.token, c.seqs)
	return b, errors.Join(err, s.releaseUnless(ctx, err == nil, b.token, c.seqs))
}

// choice is which rows a take is about.
type choice struct {
	seqs []int64
	more bool
}

// canTake returns an error if the role may not lock rows.
func (s *Store) canTake(ctx context.Context) error {
	err := s.inTransaction(ctx, func(tx *sql.Tx) error {
		_, err := s.choose(ctx, tx, 0, front)
		return err
	})
	if err != nil {
		return fmt.Errorf("the table cannot be taken from: %w", err)
	}
	return nil
}

func (s *Store) choose(ctx context.Context, tx *sql.Tx, n int, from place) (c choice, err error) {
	rows, err := tx.QueryContext(ctx, s.statements.choose,
		append(append([]any{[]byte(s.service)}, s.dialect.after(from)...), n)...)
	if err != nil {
		return c, err
	}
	found, bytes, full := 0, 0, false
	err = database.Each(rows, func(rows *sql.Rows) error {
		var seq int64
		var size int
		if err := rows.Scan(&seq, &size); err != nil {
			return err
		}
		found++
		bytes += max(0, size)
		// else it is not touched, and the next is behind it
		if full = full || bytes > maxBytes && len(c.seqs) > 0; !full {
			c.seqs = append(c.seqs, seq)
		}
		return nil
	})
	c.more = found == n || full
	return c, err
}

// lockFound locks rows that were found, as far as others have not been faster.
func (s *Store) lockFound(ctx context.Context, tx *sql.Tx, found choice) (c choice, err error) {
	condition, args := s.dialect.among(found.seqs)
	rows, err := tx.QueryContext(ctx, s.db.Statement(s.statements.lockIn+condition+s.db.SkipLocked()), args...)
	if err != nil {
		return c, err
	}
	c.more = found.more
	err = database.Each(rows, func(rows *sql.Rows) error {
		var seq int64
		err := rows.Scan(&seq)
		c.seqs = append(c.seqs, seq)
		return err
	})
	return c, err
}

func (s *Store) readTaken(ctx context.Context, token string, seqs []int64) (read []taken, err error) {
	if len(seqs) == 0 {
		return nil, nil
	}
	condition, args := s.dialect.among(seqs)
	var at time.Time
	err = s.rows(ctx, func() { read, at = make([]taken, 0, len(seqs)), time.Now() }, func(rows *sql.Rows) error {
		var t taken
		var topic, id, metadata, payload []byte
		var hasPayload bool
		var late int64
		if err := rows.Scan(&t.seq, &topic, &id, &metadata, &payload, &hasPayload, &t.failures, &late); err != nil {
			return err
		}
		t.topic, t.late, t.readAt = string(topic), microseconds(late), at
		t.msg, t.damage = decode(id, metadata, payload, hasPayload)
		read = append(read, t)
		return nil
	}, s.db.Statement(s.statements.readIn+condition+` ORDER BY due_at, seq`), append([]any{token}, args...)...)
	return read, err
}

func (s *Store) releaseUnless(ctx context.Context, fine bool, token string, seqs []int64) error {
	if fine {
		return nil
	}
	return s.release(ctx, token, seqs)
}

// remove deletes rows, release makes them as if they had never been taken, and postpone puts them off and counts so
// many failures more. Renew lets the lease last from now on. All of them leave rows alone that are under another token.
func (s *Store) remove(ctx context.Context, token string, seqs []int64) error {
	_, err := s.underToken(ctx, s.statements.removeIn, seqs, token)
	return err
}

func (s *Store) release(ctx context.Context, token string, seqs []int64) error {
	_, err := s.underToken(ctx, s.statements.releaseIn, seqs, token)
	return err
}

func (s *Store) postpone(ctx context.Context, token string, seqs []int64, wait time.Duration, failures int) error {
	_, err := s.underToken(ctx, s.statements.postponeIn, seqs, wait.Microseconds(), failures, token)
	return err
}

// renew reports whether all of the rows were still under the token.
func (s *Store) renew(ctx context.Context, token string, seqs []int64, lease time.Duration) (all bool, err error) {
	n, err := s.underToken(ctx, s.statements.renewIn, seqs, lease.Microseconds(), token)
	return n == int64(len(seqs)), err
}

func (s *Store) underToken(ctx context.Context, statement string, seqs []int64, args ...any) (n int64, err error) {
	err = s.inTransaction(ctx, func(tx *sql.Tx) error {
		n, err = s.execAmong(ctx, tx, statement, seqs, args...)
		return err
	})
	return n, err
}

func (s *Store) execAmong(ctx context.Context, tx *sql.Tx, statement string, seqs []int64, args ...any) (int64, error) {
	if len(seqs) == 0 {
		return 0, nil
	}
	condition, more := s.dialect.among(seqs)
	result, err := tx.ExecContext(ctx, s.db.Statement(statement+condition),
		append(args[:len(args):len(args)], more...)...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (s *Store) inTransaction(ctx context.Context, work func(*sql.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, maxWrite)
	defer cancel()
	return s.db.Write(ctx, work)
}

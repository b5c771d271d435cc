package delayed

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

// A row can be taken when ready_at is over: that is due_at at first, the end of the lease when it was taken, and the
// end of the wait when it was refused. So one index answers what can be taken next, whatever holds the others back.

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
}

// notOf is the condition to be of none of these topics. The last one is repeated, so that there are few statements to
// prepare.
func notOf(topics []string) (condition string, args []any) {
	if len(topics) == 0 {
		return "", nil
	}
	n := 1
	for n < len(topics) {
		n *= 2
	}
	for i := range n {
		args = append(args, []byte(topics[min(i, len(topics)-1)]))
	}
	return ` AND topic NOT IN (?` + strings.Repeat(`, ?`, n-1) + `)`, args
}

// next returns how long it is until a row can be taken that is of none of the topics, 0 or less where one can be. ok is
// false when there is none before the horizon. What is due later is not looked for: the leases of what was deleted lie
// there.
func (s *Store) next(ctx context.Context, horizon time.Duration,
	without []string) (in time.Duration, ok bool, err error) {
	condition, args := notOf(without)
	err = s.Rows(ctx, func() { ok = false }, func(rows *sql.Rows) error {
		var us int64
		err := rows.Scan(&us)
		in, ok = database.Microseconds(us), true
		return err
	}, nextText(s, condition),
		append([]any{[]byte(s.service), horizon.Microseconds()}, args...)...)
	return in, ok, err
}

func nextText(s *Store, condition string) string {
	return s.db.Statement(`SELECT ready_at - now_us() FROM spillway_delayed` + s.index + `
WHERE service = ? AND ready_at <= now_us() + ?` + condition + ` ORDER BY ready_at, due_at, seq LIMIT 1`)
}

// take leases at most n rows that are due and of none of the topics without. It passes over what others have locked.
func (s *Store) take(ctx context.Context, n int, lease time.Duration, without []string) (batch, error) {
	b := batch{token: watermill.NewUUID()}
	var seqs []int64
	err := s.inTransaction(ctx, func(tx *sql.Tx) (err error) {
		if s.db.Kind() == database.SQLite {
			// a transaction that has read is refused when it wants to write and another process has written meanwhile
			if _, err := tx.ExecContext(ctx, `UPDATE spillway_delayed SET token = token WHERE seq = 0`); err != nil {
				return err
			}
		}
		condition, args := notOf(without)
		if seqs, b.more, err = s.choose(ctx, tx, n, condition, args...); err != nil {
			return err
		}
		_, err = s.execAmong(ctx, tx, `UPDATE spillway_delayed SET token = ?, ready_at = now_us() + ? WHERE `, seqs, b.token,
			lease.Microseconds())
		return err
	})
	if err != nil {
		return b, err
	}
	b.rows, err = s.readTaken(ctx, b.token, seqs)
	if err != nil {
		err = errors.Join(err, s.release(ctx, b.token, seqs))
	}
	return b, err
}

// chooseText passes over topics, if the condition names some, in the index: PostgreSQL looks into each row that it is
// to lock, so there the rows are found first. What another relay has taken since then is not due any more.
func chooseText(s *Store, condition string) string {
	text := `FROM spillway_delayed` + s.index + `
WHERE service = ? AND ready_at <= now_us()` + condition + ` ORDER BY ready_at, due_at, seq LIMIT ?`
	if s.db.Kind() == database.Postgres && condition != "" {
		text = `FROM spillway_delayed WHERE seq = ANY (ARRAY (SELECT seq ` + text + `))
AND ready_at <= now_us() ORDER BY ready_at, due_at, seq`
	}
	return s.db.Statement(`SELECT seq, size ` + text + s.db.SkipLocked())
}

// choose locks at most n rows that are due.
func (s *Store) choose(ctx context.Context, tx *sql.Tx, n int, condition string,
	args ...any) (seqs []int64, more bool, err error) {
	found, bytes, full := 0, 0, false
	err = database.Each(ctx, tx, func(rows *sql.Rows) error {
		var seq int64
		var size int
		if err := rows.Scan(&seq, &size); err != nil {
			return err
		}
		found++
		bytes += max(0, size)
		// else it is not touched, and the next is behind it
		if full = full || bytes > maxBytes && len(seqs) > 0; !full {
			seqs = append(seqs, seq)
		}
		return nil
	}, chooseText(s, condition),
		append(append([]any{[]byte(s.service)}, args...), n)...)
	return seqs, found == n || full, err
}

// canTake returns an error if the role may not lock rows.
func (s *Store) canTake(ctx context.Context) error {
	err := s.inTransaction(ctx, func(tx *sql.Tx) error {
		_, _, err := s.choose(ctx, tx, 0, "")
		return err
	})
	if err != nil {
		return fmt.Errorf("the table cannot be taken from: %w", err)
	}
	return nil
}

func (s *Store) readTaken(ctx context.Context, token string, seqs []int64) (read []taken, err error) {
	if len(seqs) == 0 {
		return nil, nil
	}
	condition, args := s.db.Among("seq", seqs)
	err = s.Rows(ctx, func() { read = make([]taken, 0, len(seqs)) }, func(rows *sql.Rows) error {
		var t taken
		var topic, id, metadata, payload []byte
		var hasPayload bool
		if err := rows.Scan(&t.seq, &topic, &id, &metadata, &payload, &hasPayload, &t.failures); err != nil {
			return err
		}
		t.topic = string(topic)
		t.msg, t.damage = metadatacodec.Message(id, metadata, payload, hasPayload)
		read = append(read, t)
		return nil
	}, s.db.Statement(`SELECT seq, topic, id, metadata, payload, payload IS NOT NULL, failures
FROM spillway_delayed WHERE token = ? AND `+condition+` ORDER BY due_at, seq`), append([]any{token}, args...)...)
	return read, err
}

// remove deletes rows, release makes them as if they had never been taken, and postpone puts one off and counts a
// failure more. Renew lets the lease last from now on. All of them leave rows alone that are under another token.
func (s *Store) remove(ctx context.Context, token string, seqs []int64) error {
	_, err := s.underToken(ctx, `DELETE FROM spillway_delayed WHERE token = ? AND `, seqs, token)
	return err
}

func (s *Store) release(ctx context.Context, token string, seqs []int64) error {
	_, err := s.underToken(ctx, `UPDATE spillway_delayed SET token = '', ready_at = due_at WHERE token = ? AND `, seqs,
		token)
	return err
}

func (s *Store) postpone(ctx context.Context, token string, seq int64, wait time.Duration) error {
	_, err := s.underToken(ctx, `UPDATE spillway_delayed SET token = '', ready_at = now_us() + ?, failures = failures + 1
WHERE token = ? AND `, []int64{seq}, wait.Microseconds(), token)
	return err
}

// renew reports whether all of the rows were still under the token.
func (s *Store) renew(ctx context.Context, token string, seqs []int64, lease time.Duration) (all bool, err error) {
	n, err := s.underToken(ctx, `UPDATE spillway_delayed SET ready_at = now_us() + ? WHERE token = ? AND `, seqs,
		lease.Microseconds(), token)
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
	condition, more := s.db.Among("seq", seqs)
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

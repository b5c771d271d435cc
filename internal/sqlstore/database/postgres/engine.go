// Package postgres knows what is particular to PostgreSQL: its SQL, its catalog, and what its errors mean. Any
// database/sql driver will do whose errors have a method SQLState, as those of pgx and lib/pq have.
package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database/rerun"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
)

// Engine is what PostgreSQL does in its own way. See the interface in package database.
type Engine struct{}

// The clocks. now_ms() is the time of evaluation, so a statement that waited for a lock sees the time after its wait.
// now_us() is the time at which the statement came in: a clock that may change from row to row could not be looked up
// in an index, and the transaction's own time may be of long ago.
const (
	nowMS = `(extract(epoch FROM clock_timestamp()) * 1000)::bigint`
	nowUS = `(extract(epoch FROM statement_timestamp()) * 1000000)::bigint`
)

var clock = strings.NewReplacer("now_ms()", nowMS, "now_us()", nowUS)

// Statement spells the clocks, and turns question marks into $1, $2 and so on.
func (Engine) Statement(text string) string { return numbered(clock.Replace(text)) }

// Text binds text for a text column. It must be valid UTF-8 without NUL.
func (Engine) Text(s string) any { return s }

// Bytes binds any bytes for a bytea column: a text may not hold NUL, nor what is not UTF-8.
func (Engine) Bytes(s string) any { return []byte(s) }

// SkipLocked passes over the rows that others have locked.
func (Engine) SkipLocked() string { return ` FOR UPDATE SKIP LOCKED` }

// Write runs work in a transaction, and again if the server ended the transaction because of another one.
func (Engine) Write(ctx context.Context, db *sql.DB, work func(*sql.Tx) error) error {
	return rerun.Write(ctx, db, Undone, work)
}

// Again runs one statement, and again if the server undid it because of others.
func (Engine) Again(ctx context.Context, _ *sql.DB, statement func() error) error {
	return rerun.Statement(ctx, Undone, statement)
}

// Read runs read once: readers wait for no one.
func (Engine) Read(_ context.Context, read func() error) error { return read() }

// customPlans is of the transaction alone. PostgreSQL 11 has no such setting.
const customPlans = `SELECT set_config('plan_cache_mode', 'force_custom_plan', true) WHERE current_setting('plan_cache_mode', true) IS NOT NULL`

// Planned runs read in a transaction in which each query is planned for its values.
func (Engine) Planned(ctx context.Context, db *sql.DB, read func(schema.Session) error) error {
	return rerun.Transaction(ctx, db, &sql.TxOptions{Isolation: sql.LevelReadCommitted, ReadOnly: true},
		func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, customPlans); err != nil {
				return err
			}
			return read(tx)
		})
}

// Largest returns 0: no limit can be reached that the server does not name in its error.
func (Engine) Largest(context.Context, *sql.DB) (int, error) { return 0, nil }

// TooLarge reports whether a value had more than 1 GB.
func (Engine) TooLarge(err error, _, _ int) bool { return State(err) == programLimitExceeded }

// MayNot reports whether the role has no right to do it, or the session may only read.
func (Engine) MayNot(err error) bool {
	state := State(err)
	return state == "42501" || state == "25006"
}

// IsThere returns false: the files say IF NOT EXISTS, and an error ends the transaction.
func (Engine) IsThere(error) bool { return false }

// Taken reports whether a row with the same unique key is there.
func (Engine) Taken(err error) bool { return State(err) == uniqueViolation }

// PrimaryTaken reports whether a row with the same primary key is there. The error names the constraint, in each of the
// server's languages.
func (e Engine) PrimaryTaken(err error, t schema.Table) bool {
	return e.Taken(err) && strings.Contains(err.Error(), t.Name+"_pkey")
}

// Behind compares the sequence of the key's first column with the rows.
func (Engine) Behind(ctx context.Context, s schema.Session, t schema.Table) (behind bool, err error) {
	var sequence sql.NullString
	err = one(ctx, s, `SELECT pg_get_serial_sequence('`+t.Name+`', '`+t.Key[0]+`')`, &sequence)
	if err == nil && sequence.Valid {
		err = one(ctx, s, `SELECT COALESCE((SELECT MAX(`+t.Key[0]+`) FROM `+t.Name+`) >
(SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM `+sequence.String+`), false)`, &behind)
	}
	return behind, err
}

func one(ctx context.Context, s schema.Session, query string, to any) error {
	rows, err := s.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	if rows.Next() {
		err = rows.Scan(to)
	}
	return errors.Join(err, rows.Err())
}

// Renumber lets the sequence go on behind the rows.
func (Engine) Renumber(t schema.Table) string {
	return fmt.Sprintf(`SELECT setval(pg_get_serial_sequence('%s', '%s'), (SELECT MAX(%[2]s) FROM %[1]s))`, t.Name, t.Key[0])
}

// numbered turns the question marks of a statement into $1, $2 and so on. It may have no others.
func numbered(statement string) string {
	parts := strings.Split(statement, "?")
	var b strings.Builder
	for i, part := range parts {
		if i > 0 {
			b.WriteString("$" + strconv.Itoa(i))
		}
		b.WriteString(part)
	}
	return b.String()
}

// The errors that a store acts on (PostgreSQL's Appendix A).
const (
	// NoTransaction says that a statement stood outside of a transaction.
	NoTransaction = "25P01"
	// FailedTransaction says that a statement before it failed, and that nothing of the transaction can commit.
	FailedTransaction = "25P02"
	// NotPrepared says that the session does not have a prepared statement, and DuplicatePrepared that it has the
	// statement already.
	NotPrepared       = "26000"
	DuplicatePrepared = "42P05"

	uniqueViolation      = "23505"
	programLimitExceeded = "54000"
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
)

// State returns the SQLSTATE in err, or "".
func State(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	return ""
}

// Undone reports whether the server ended the transaction because of another one.
func Undone(err error) bool {
	state := State(err)
	return state == deadlockDetected || state == serializationFailure
}

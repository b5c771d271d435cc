package keytable

import (
	"context"
	"database/sql"
	"errors"
)

// Session is what a claim in PostgreSQL must find again at its end: its transaction, and the settings under which the
// table of keys is found and may be used.
type Session struct {
	ID               int64
	Role, SearchPath string
}

const (
	session = `txid_current(), current_setting('role'), current_setting('search_path')`
	restore = `SELECT set_config('role', $1, true), set_config('search_path', $2, true)`
)

// EnterOncePostgres and EnterHigherPostgres enter a row: consumer, id, applied_at, fingerprint, version, nonce. They
// return the Session, or no row if the key is there, with the same version or a higher one.
var (
	EnterOncePostgres   = InPostgres.enter + ` RETURNING ` + session
	EnterHigherPostgres = InPostgres.upsert + ` RETURNING ` + session
)

// StatementPostgres returns the statement that enters the row, and its arguments.
func StatementPostgres(row Row) (text string, args []any) {
	text = EnterOncePostgres
	if row.Versioned {
		text = EnterHigherPostgres
	}
	return text, []any{row.Consumer, row.ID, row.At, row.Fingerprint, row.version(), row.Nonce}
}

// EnterPostgres is Dialect.Enter, with the Session.
func EnterPostgres(ctx context.Context, tx Querier, row Row) (s Session, record *Record, err error) {
	text, args := StatementPostgres(row)
	err = tx.QueryRowContext(ctx, text, args...).Scan(&s.ID, &s.Role, &s.SearchPath)
	if !errors.Is(err, sql.ErrNoRows) {
		return s, nil, err
	}
	record, err = InPostgres.Resolve(ctx, tx, row)
	if errors.Is(err, sql.ErrNoRows) { // it was purged in between
		record, err = InPostgres.Enter(ctx, tx, row)
	}
	if err == nil && record == nil {
		s, err = SessionPostgres(ctx, tx)
	}
	return s, record, err
}

// SessionPostgres reads the Session.
func SessionPostgres(ctx context.Context, tx Querier) (s Session, err error) {
	err = tx.QueryRowContext(ctx, `SELECT `+session).Scan(&s.ID, &s.Role, &s.SearchPath)
	return s, err
}

// Restore sets the settings for the rest of the transaction.
func (s Session) Restore(ctx context.Context, tx Querier) error {
	text, args := s.Statement()
	return tx.QueryRowContext(ctx, text, args...).Scan(new(string), new(string))
}

// Statement is what Restore says.
func (s Session) Statement() (text string, args []any) { return restore, []any{s.Role, s.SearchPath} }

// RecordPostgres is the statement that records outputs: outputs, consumer, id.
var RecordPostgres = InPostgres.record

// Package postgres knows what the errors of PostgreSQL mean. Any database/sql driver will do whose errors have a method
// SQLState, as those of pgx and lib/pq have.
package postgres

import (
	"errors"
	"fmt"
)

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

	// UniqueViolation says that a row with the same unique key is there, and ProgramLimitExceeded that a value is too
	// large.
	UniqueViolation      = "23505"
	ProgramLimitExceeded = "54000"

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

// PoolerRemedy is what to do about connections that lead to the sessions of others.
const PoolerRemedy = "a pooler between lets clients share sessions, and what one prepares another meets: add " +
	"default_query_exec_mode=exec, or cache_describe, to the address of the database (pgx), let the pooler keep " +
	"prepared statements (PgBouncer 1.21 and later: max_prepared_statements), or set it to session mode"

// Pooled reports whether an error comes of a pooler in transaction mode: what the driver prepared is in another
// session.
func Pooled(err error) bool {
	state := State(err)
	return state == DuplicatePrepared || state == NotPrepared
}

// WithRemedy adds the PoolerRemedy to an error that comes of a pooler.
func WithRemedy(err error) error {
	if Pooled(err) {
		return fmt.Errorf("%s: %w", PoolerRemedy, err)
	}
	return err
}

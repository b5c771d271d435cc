// Package postgres knows what is particular to PostgreSQL: its SQL, its catalog, and what its errors mean. Any
// database/sql driver will do whose errors have a method SQLState, as those of pgx and lib/pq have.
package postgres

import (
	"errors"
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

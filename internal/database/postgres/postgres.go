// Package postgres holds what every store of Spillway on PostgreSQL shares: the making of tables, and what the server's
// errors mean. It knows no driver: whatever database/sql driver speaks PostgreSQL will do, if its errors tell their
// SQLSTATE as those of pgx and lib/pq do.
package postgres

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"

	"github.com/watermill-spillway/spillway/internal/database/rerun"
)

// The errors that a store acts on (PostgreSQL's Appendix A).
const (
	// NoTransaction says that a statement stood outside of a transaction.
	NoTransaction = "25P01"
	// FailedTransaction says that a statement before it failed, and that nothing of the transaction can commit.
	FailedTransaction = "25P02"

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

// Undone tells whether the server ended the transaction because of another one.
func Undone(err error) bool {
	state := State(err)
	return state == deadlockDetected || state == serializationFailure
}

// Options are those of every transaction of a store, whatever the database's default is. Under READ COMMITTED each
// statement sees what others have committed by then, so a key that was waited for is found. Under REPEATABLE READ the
// wait would end with 40001, on every attempt anew.
var Options = &sql.TxOptions{Isolation: sql.LevelReadCommitted}

// Write runs work in a transaction. It runs work again when the server ended the transaction because of another one;
// what a failed run did is undone.
func Write(ctx context.Context, db *sql.DB, work func(*sql.Tx) error) error {
	return rerun.Write(ctx, db, Options, Undone, work)
}

// Numbered turns the question marks of a statement into $1, $2 and so on. It may have no others.
func Numbered(statement string) string {
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

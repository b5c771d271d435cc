// Package rerun repeats statements and transactions that the database undid because of others.
package rerun

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/watermill-spillway/spillway/internal/timing"
)

const (
	// maxTransactions is how often a transaction may be in another's way before its error is returned.
	maxTransactions = 10
	// maxStatements is the same for a single statement.
	maxStatements = 5
)

// readCommitted is for every transaction on a server, whatever its default is: each statement sees what others have
// committed by then, so a key that was waited for is found. Under REPEATABLE READ such a wait ends with an error on
// PostgreSQL, and on MySQL neighbours in an index wait for each other.
var readCommitted = &sql.TxOptions{Isolation: sql.LevelReadCommitted}

// Write runs work in a transaction. If undone reports that others are the reason of its error, Write runs work again
// after a wait that grows. What a failed run did is rolled back. Work must return the error of a statement and write
// nothing after it.
func Write(ctx context.Context, db *sql.DB, undone func(error) bool, work func(*sql.Tx) error) error {
	for run := 1; ; run++ {
		err := Transaction(ctx, db, readCommitted, work)
		if err == nil || run == maxTransactions || !undone(err) {
			return err
		}
		if !timing.Wait(ctx, rand.N(time.Duration(run)*10*time.Millisecond)) {
			return errors.Join(ctx.Err(), err)
		}
	}
}

// Transaction runs work in a transaction, once.
func Transaction(ctx context.Context, db *sql.DB, options *sql.TxOptions, work func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, options)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// Statement runs one statement outside of a transaction, and again if undone reports that others are the reason of its
// error.
func Statement(ctx context.Context, undone func(error) bool, statement func() error) error {
	for run := 1; ; run++ {
		err := statement()
		if err == nil || run == maxStatements || !undone(err) || !timing.Wait(ctx, time.Duration(run)*5*time.Millisecond) {
			return err
		}
	}
}

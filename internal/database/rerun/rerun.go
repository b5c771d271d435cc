// Package rerun runs transactions again that the database undid because of others.
package rerun

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/watermill-spillway/spillway/internal/wait"
)

// most is how often a transaction may be in another's way before its error is returned.
const most = 10

// Write runs work in a transaction, and again, after a wait that grows, when undone says that others are the reason of
// its error. What a failed run did is rolled back. Work must return the error of a statement and write nothing after it.
func Write(ctx context.Context, db *sql.DB, options *sql.TxOptions, undone func(error) bool, work func(*sql.Tx) error) error {
	for run := 1; ; run++ {
		err := write(ctx, db, options, work)
		if err == nil || run == most || !undone(err) {
			return err
		}
		if !wait.For(ctx, rand.N(time.Duration(run)*10*time.Millisecond)) {
			return errors.Join(ctx.Err(), err)
		}
	}
}

func write(ctx context.Context, db *sql.DB, options *sql.TxOptions, work func(*sql.Tx) error) error {
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

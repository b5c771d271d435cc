package chain

import (
	"context"
	"database/sql"
)

type transactionKey struct{}

// WithTransaction returns ctx with an adapter's value for the transaction in which it consumes the message.
func WithTransaction(ctx context.Context, transaction any) context.Context {
	return context.WithValue(ctx, transactionKey{}, transaction)
}

// TransactionOf returns the value of WithTransaction in ctx, or nil.
func TransactionOf(ctx context.Context) any { return ctx.Value(transactionKey{}) }

// CarryTransaction returns to with the transaction of from, if there is one. So a publisher that can publishes outputs
// of a message in the message's own transaction.
func CarryTransaction(to, from context.Context) context.Context {
	transaction := TransactionOf(from)
	if transaction == nil || TransactionOf(to) == transaction {
		return to
	}
	return WithTransaction(to, transaction)
}

// Joined is a transaction of a subscriber that stores can write in.
type Joined interface {
	// Write runs work behind a savepoint of the transaction, on its connection. It reports false, and does not run
	// work, if the transaction is of another database than db, or the message is settled. An error of work undoes work
	// and nothing else.
	Write(db *sql.DB, work func(*sql.Tx) error) (joined bool, err error)
}

// WriteJoined runs work in the transaction of ctx, if there is one on db. See Joined.
func WriteJoined(ctx context.Context, db *sql.DB, work func(*sql.Tx) error) (joined bool, err error) {
	t, ok := TransactionOf(ctx).(Joined)
	if !ok {
		return false, nil
	}
	return t.Write(db, work)
}

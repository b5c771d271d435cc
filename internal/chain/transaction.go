package chain

import (
	"context"
	"database/sql"
)

type transactionKey struct{}

// WithTransaction returns ctx with what an adapter knows of the transaction in which it consumes the message.
func WithTransaction(ctx context.Context, transaction any) context.Context {
	return context.WithValue(ctx, transactionKey{}, transaction)
}

// TransactionOf returns what WithTransaction left in ctx, or nil.
func TransactionOf(ctx context.Context) any { return ctx.Value(transactionKey{}) }

// CarryTransaction returns to with the transaction of from, if there is one: what comes of a message is published in the
// message's own transaction, by a publisher that can.
func CarryTransaction(to, from context.Context) context.Context {
	transaction := TransactionOf(from)
	if transaction == nil || TransactionOf(to) == transaction {
		return to
	}
	return WithTransaction(to, transaction)
}

// Joined is a transaction that what comes of its message can be written in.
type Joined interface {
	// Write runs work behind a savepoint of the transaction, on the connection that it has, and tells that it did: not
	// where the transaction is of another database than db, or its message is settled. An error undoes work and nothing else.
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

package chain

import "context"

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

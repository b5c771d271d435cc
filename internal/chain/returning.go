package chain

import "context"

type returningKey struct{}

// Returning returns ctx for a message that Spillway itself publishes: a dead letter, a message on its way into a retry
// stage, or back to where it came from. Our keys in the metadata of such a message were judged by us. In what a handler
// produces they are the word of the producer, wherever the handler passes metadata on.
func Returning(ctx context.Context) context.Context {
	if IsReturning(ctx) {
		return ctx
	}
	return context.WithValue(ctx, returningKey{}, true)
}

// IsReturning reports whether ctx is of a message that Spillway itself publishes.
func IsReturning(ctx context.Context) bool { return ctx.Value(returningKey{}) != nil }

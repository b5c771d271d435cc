package chain

import "context"

type returningKey struct{}

// Returning returns ctx for a message that Spillway itself publishes: a dead letter, a message on its way into a retry
// stage, or a redriven one. Spillway wrote the metadata keys of Spillway in such a message. In a handler's output, any
// producer may have written them.
func Returning(ctx context.Context) context.Context {
	if IsReturning(ctx) {
		return ctx
	}
	return context.WithValue(ctx, returningKey{}, true)
}

// IsReturning reports whether ctx is of a message that Spillway itself publishes.
func IsReturning(ctx context.Context) bool { return ctx.Value(returningKey{}) != nil }

// Package first puts an observer's hook before one that the user has set: both are called, ours first.
package first

import "context"

// Ours returns a hook that calls ours, and theirs after it if there is one.
func Ours[T any](ours, theirs func(context.Context, T)) func(context.Context, T) {
	if theirs == nil {
		return ours
	}
	return func(ctx context.Context, v T) {
		ours(ctx, v)
		theirs(ctx, v)
	}
}

// Ours2 is Ours for hooks with two values.
func Ours2[T, U any](ours, theirs func(context.Context, T, U)) func(context.Context, T, U) {
	if theirs == nil {
		return ours
	}
	return func(ctx context.Context, v T, u U) {
		ours(ctx, v, u)
		theirs(ctx, v, u)
	}
}

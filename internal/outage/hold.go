package outage

import (
	"context"
	"time"
)

// DefaultMaxHold is less than the shortest usual time after which a broker delivers a message again: 30 s.
const DefaultMaxHold = 20 * time.Second

type holdKey struct{}

// WithMaxHold returns ctx for messages of an adapter that knows how long they may be held. It is for brokers that count what is
// given back, and drop a message that was given back too often.
func WithMaxHold(ctx context.Context, hold time.Duration) context.Context {
	return context.WithValue(ctx, holdKey{}, hold)
}

// MaxHold returns how long a message with ctx may be held: configured, or if that is 0 what its adapter says, or
// DefaultMaxHold.
func MaxHold(ctx context.Context, configured time.Duration) time.Duration {
	if configured != 0 {
		return configured
	}
	if hold, ok := ctx.Value(holdKey{}).(time.Duration); ok {
		return hold
	}
	return DefaultMaxHold
}

package outage

import (
	"context"
	"time"
)

// DefaultMaxHold is less than the shortest usual time after which a broker redelivers a message without an ack: 30 s.
const DefaultMaxHold = 20 * time.Second

type holdKey struct{}

// WithMaxHold returns ctx for a message that its adapter lets be held for hold. It is for brokers that count returned
// messages, and drop a message that was returned too often.
func WithMaxHold(ctx context.Context, hold time.Duration) context.Context {
	return context.WithValue(ctx, holdKey{}, hold)
}

// Rest returns how much longer a message may be held that was held before. It keeps a reserve free before the deadline
// of ctx, to give the message back in.
func Rest(ctx context.Context, configured, held time.Duration) time.Duration {
	rest := MaxHold(ctx, configured) - held
	if deadline, ok := ctx.Deadline(); ok {
		rest = min(rest, time.Until(deadline)-reserve)
	}
	return max(rest, 0)
}

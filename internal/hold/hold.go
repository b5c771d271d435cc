// Package hold says how long a message may be held without an ack, and knows messages that their broker delivers again
// meanwhile.
//
// A part that holds a message asks Rest for how long, and calls Holding. Settle, at the outermost part of a chain, settles
// a copy of a held message as that one is settled.
package hold

import (
	"context"
	"time"
)

// NewUnavailable returns an error that says that what is needed is unavailable, for Spillway's own clients. outage.Away
// is true for it. Wrap it, or keep it as a sentinel.
func NewUnavailable(text string) error { return &Unavailable{text} }

// Unavailable is an error of NewUnavailable.
type Unavailable struct{ text string }

func (e *Unavailable) Error() string { return e.text }

// reserve is the time kept free before the deadline of a message, to requeue it in.
const reserve = time.Second

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

// Package due lets a subscriber hold the messages of a retry stage as its broker gave them, and hand them over when
// they are due.
//
// Without it, a stage holds each waiting message in a goroutine. A subscriber that knows this package holds them
// itself, which costs no goroutine and no unmarshaled message behind the window:
//
//	stage                               subscriber
//	  │ Subscribe(With(ctx, Stage))         │ Of(ctx)
//	  │ ◀──── Until(msg, arrived) ──────────│ when is it due?
//	  │                                     │ waits
//	  │ ◀──── Take(msg) ────────────────────│ it is due: in a goroutine of the subscriber, until the message is settled
//
// The channel that Subscribe returns then carries no message. It is closed when the subscription has ended.
package due

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Stage is what a retry stage tells its subscriber.
type Stage struct {
	// Delay is how long messages wait at least. It is 0 if they do not wait.
	Delay time.Duration
	// Until returns the time to hold a message until that arrived at a time. It does not change the message.
	Until func(msg *message.Message, arrived time.Time) time.Time
	// Take handles a message, whose context is set, and returns when it is settled, or when its subscription has ended.
	// The context does not end before its graceful.TakingOf does.
	Take func(msg *message.Message)
}

// Subscriber is a subscriber whose channels carry no message if Subscribe was called with a Stage.
type Subscriber interface {
	message.Subscriber
	// HoldsUntilDue does nothing.
	HoldsUntilDue()
}

type stageKey struct{}

// With returns ctx for a call of Subscribe.
func With(ctx context.Context, stage Stage) context.Context {
	return context.WithValue(ctx, stageKey{}, &stage)
}

// Of returns the stage in ctx, or nil.
func Of(ctx context.Context) *Stage {
	stage, _ := ctx.Value(stageKey{}).(*Stage)
	return stage
}

type arrivedKey struct{}

// WithArrived returns ctx for a message that its subscriber has held since then.
func WithArrived(ctx context.Context, arrived time.Time) context.Context {
	return context.WithValue(ctx, arrivedKey{}, arrived)
}

// Arrived returns when the message with ctx arrived. It is now, unless its subscriber has held it.
func Arrived(ctx context.Context) time.Time {
	if arrived, ok := ctx.Value(arrivedKey{}).(time.Time); ok {
		return arrived
	}
	return time.Now()
}

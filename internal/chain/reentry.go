package chain

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/foreign"
)

// Reentry is in the context of a message that comes to its handler again, out of a retry stage.
type Reentry struct {
	// Handler is the name of the handler that the message first came to.
	Handler string
	// As is the name of the router's handler that gets the message out of the stage. Some pub/subs pass a context on
	// with what a handler published: a handler with another name then ignores the Reentry. If it is empty, as Handler
	// is, it becomes the name of the first handler that gets the message.
	As string
	// Topic is the stage topic that the message waited in.
	Topic string
	// Stage is the number of the stage that the message waited in. The first is 1, and 0 is none.
	Stage int
	// Foreign means that the message waits for another handler, which may never get it.
	Foreign bool
	// Held is how long the stage held the message, which counts against the time that its adapter allows. See
	// Call.Held.
	Held time.Duration
	// Met is set by the stages' middleware.
	Met bool
}

type reentryKey struct{}

// stages is set if this process has stages. Only then a chain looks for a Reentry in each message, since one function
// can serve the live topic and its stages.
var stages atomic.Bool

// WithReentry returns ctx with r, for a message of a stage.
func WithReentry(ctx context.Context, r *Reentry) context.Context {
	stages.Store(true)
	return context.WithValue(ctx, reentryKey{}, r)
}

// ReentryOf returns the Reentry in ctx, or nil if there is none for the handler of ctx.
func ReentryOf(ctx context.Context) *Reentry {
	r, _ := ctx.Value(reentryKey{}).(*Reentry)
	if r == nil {
		return nil
	}
	name := message.HandlerNameFromCtx(ctx)
	if r.As == "" && r.Handler == "" {
		r.As, r.Handler = name, name
	}
	if name != r.As && name != r.Handler {
		return nil
	}
	return r
}

// identify replaces the stage's name in the message's context by the name of the handler that the message first came
// to. So the receiver, the dead letters and user code see one consumer.
func (r *Reentry) identify(msg *message.Message) {
	if ctx := msg.Context(); message.HandlerNameFromCtx(ctx) != r.Handler {
		msg.SetContext(foreign.WithHandler(ctx, r.Handler))
	}
}

package chain

import (
	"context"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Reentry tells that a message comes to a handler that it has met before: out of a retry stage.
type Reentry struct {
	// Handler is the name of the handler that the message first came to, which is who consumes it.
	Handler string
	// As is the name of the stage's handler in the router. Whoever has another name has the context alone, which some
	// pub/subs hand on with what a handler published.
	As string
	// Stage is the stage the message comes out of, the first being 1, or 0 for none that is known.
	Stage int
	// Foreign says that the message waits for another handler than this, and that nobody else may ever see it.
	Foreign bool
	// Met is set by the stages that the message passes on its way to the handler.
	Met bool
}

type reentryKey struct{}

// stages tells that there are any in this process. Without them nobody pays for the question whose message it is; with
// them it is asked for each, since a function may serve the live topic and its stages alike.
var stages atomic.Bool

// WithReentry returns ctx with r, for the messages of a stage.
func WithReentry(ctx context.Context, r *Reentry) context.Context {
	stages.Store(true)
	return context.WithValue(ctx, reentryKey{}, r)
}

// ReentryOf returns what WithReentry left in ctx for the handler that has it, or nil.
func ReentryOf(ctx context.Context) *Reentry {
	r, _ := ctx.Value(reentryKey{}).(*Reentry)
	if r == nil {
		return nil
	}
	if name := message.HandlerNameFromCtx(ctx); name != r.As && name != r.Handler {
		return nil
	}
	return r
}

// Within returns ctx as a handler's message has it, for what is done on its behalf outside of a router.
func Within(ctx context.Context, handler, topic string) context.Context {
	return context.WithValue(context.WithValue(ctx, handlerName, handler), subscribeTopic, topic)
}

// identify gives the message's context the name of the handler that it first came to, in place of the stage's: the
// receiver, the names of dead letters, and whoever else asks, see one consumer.
func (r *Reentry) identify(msg *message.Message) {
	if ctx := msg.Context(); message.HandlerNameFromCtx(ctx) != r.Handler {
		msg.SetContext(context.WithValue(ctx, handlerName, r.Handler))
	}
}

// handlerName and subscribeTopic are keys under which a router leaves what it knows. Watermill exports the reading alone.
var (
	handlerName    = KeyOf(func(ctx context.Context) { message.HandlerNameFromCtx(ctx) })
	subscribeTopic = KeyOf(func(ctx context.Context) { message.SubscribeTopicFromCtx(ctx) })
)

// KeyOf returns the key under which get looks for a value in a context: a secret of its package, but the context that it
// asks is told.
func KeyOf(get func(context.Context)) any {
	asked := &asked{Context: context.Background()}
	get(asked)
	return asked.key
}

// asked remembers for what it was asked.
type asked struct {
	context.Context
	key any
}

func (a *asked) Value(key any) any {
	a.key = key
	return nil
}

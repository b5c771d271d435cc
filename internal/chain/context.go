package chain

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hold/graceful"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
)

// Acked reports whether the handler acked the message itself.
func (c *Call) Acked() bool { return closed(c.Msg.Acked()) }

// Nacked reports whether the handler nacked the message itself. The message may be on its way again already.
func (c *Call) Nacked() bool { return closed(c.Msg.Nacked()) }

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// WaitContext returns the context for waits on behalf of the message, after which it is handled again or goes back. It
// ends with the message's own, and when the message's subscription takes no more. It ends with neither if the handler
// acked the message. It ends with the chain.
func (c *Call) WaitContext() context.Context {
	if c.Acked() {
		return c.PlaceContext()
	}
	if c.waits == nil {
		c.waits, c.endWaits = graceful.Waits(c.Ctx)
	}
	return c.waits
}

// PlaceContext returns the context in which the message is placed elsewhere. It is the message's own, without its end
// if the handler acked the message: an ack ends it, and the message cannot come again.
func (c *Call) PlaceContext() context.Context {
	if c.Acked() {
		return graceful.Until(context.WithoutCancel(c.Ctx), nil)
	}
	return c.Ctx
}

type ownKey struct{}

// IsOwn reports whether ctx is of a message that one of Spillway's own handlers consumes.
func IsOwn(ctx context.Context) bool { return ctx.Value(ownKey{}) != nil }

// Own wraps the subscriber of one of Spillway's own handlers, so that a chain of the router lets its messages pass.
func Own(sub message.Subscriber) (message.Subscriber, error) {
	return message.MessageTransformSubscriberDecorator(func(msg *message.Message) {
		msg.SetContext(context.WithValue(msg.Context(), ownKey{}, true))
	})(own{sub})
}

// own needs no order.
type own struct{ message.Subscriber }

func (s own) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if o := placing.OrderOf(ctx); o != nil {
		o.Taken = true
		ctx = placing.WithOrder(ctx, nil)
	}
	return s.Subscriber.Subscribe(ctx, topic)
}

type transactionKey struct{}

// WithTransaction returns ctx with an adapter's value for the transaction in which it consumes the message.
func WithTransaction(ctx context.Context, transaction any) context.Context {
	return context.WithValue(ctx, transactionKey{}, transaction)
}

// TransactionOf returns the value of WithTransaction in ctx, or nil.
func TransactionOf(ctx context.Context) any { return ctx.Value(transactionKey{}) }

// CarryTransaction returns to with the transaction of from, if there is one. So a publisher that can publishes outputs
// of a message in the message's own transaction.
func CarryTransaction(to, from context.Context) context.Context {
	transaction := TransactionOf(from)
	if transaction == nil || TransactionOf(to) == transaction {
		return to
	}
	return WithTransaction(to, transaction)
}

// Joined is a transaction of a subscriber that stores can write in.
type Joined interface {
	// Write runs work behind a savepoint of the transaction, on its connection. It reports false, and does not run
	// work, if the transaction is of another database than db, or the message is settled. An error of work undoes work
	// and nothing else.
	Write(db *sql.DB, work func(*sql.Tx) error) (joined bool, err error)
}

// WriteJoined runs work in the transaction of ctx, if there is one on db. See Joined.
func WriteJoined(ctx context.Context, db *sql.DB, work func(*sql.Tx) error) (joined bool, err error) {
	t, ok := TransactionOf(ctx).(Joined)
	if !ok {
		return false, nil
	}
	return t.Write(db, work)
}

// Claim is in a message's context while an idempotent receiver runs the handler. It shows other parts that they are
// inside of the receiver's transaction.
type Claim interface {
	// Holds reports whether msg is the claimed message. The context may be of another message by now.
	Holds(msg *message.Message) bool
	// Locks reports whether the transaction is open and keeps other writers out of db: to wait for db would be to wait
	// for itself.
	Locks(db *sql.DB) bool
}

// Attempt is in a message's context while a handler is called, unless it is the first attempt at a new message and
// another one can follow.
type Attempt struct {
	Failed      int       // attempts since the message was delivered
	FirstFailed time.Time // of them
	Last        bool      // a transient error makes the message a dead letter
	// Metadata is what arrived with a message out of a stage, or one that was redriven. Else it is nil.
	Metadata message.Metadata
}

type attemptKey struct{}

// WithAttempt returns ctx with the attempt.
func WithAttempt(ctx context.Context, a Attempt) context.Context {
	return context.WithValue(ctx, attemptKey{}, a)
}

// AttemptOf returns the attempt in ctx. The zero Attempt is the first one.
func AttemptOf(ctx context.Context) Attempt {
	a, _ := ctx.Value(attemptKey{}).(Attempt)
	return a
}

type claimKey struct{}

// WithClaim returns ctx with the claim. A nil claim hides an outer one.
func WithClaim(ctx context.Context, c Claim) context.Context {
	return context.WithValue(ctx, claimKey{}, c)
}

// ClaimOf returns the innermost claim in ctx, or nil.
func ClaimOf(ctx context.Context) Claim {
	c, _ := ctx.Value(claimKey{}).(Claim)
	return c
}

// Claimed reports whether this chain runs inside of a claim on its own message: a part was attached twice, or inside of
// the receiver though it belongs outside. Such a part must let errors pass outward. Writes of an attempt that it
// retries would still be in the transaction, and a message that it dead-letters would commit as a success.
func (c *Call) Claimed() bool {
	claim := ClaimOf(c.Ctx)
	return claim != nil && claim.Holds(c.Msg)
}

type traceKey struct{}

// WithTrace returns ctx with the Trace of an attempt, for what is published because of the attempt. See Call.Trace.
func WithTrace(ctx context.Context, trace string) context.Context {
	if trace == "" {
		return ctx
	}
	return context.WithValue(ctx, traceKey{}, trace)
}

// TraceOf returns the Trace of the attempt that what has this context is published because of, or "".
func TraceOf(ctx context.Context) string {
	trace, _ := ctx.Value(traceKey{}).(string)
	return trace
}

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
	// Released tells the latest time that a person released the message from others, in microseconds since 1970. It is
	// 0 if none did. What was counted of the message before is not counted any more.
	Released int64
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
		msg.SetContext(WithHandler(ctx, r.Handler))
	}
}

package chain

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/causes"
)

// Aborted reports whether the message went away rather than failed: its context was cancelled without an ack, or a part
// put the message back. A deadline that passed is a failure. An ack by the handler ends the context too, and the
// message has not gone away.
func (c *Call) Aborted() bool {
	return c.putBack || errors.Is(c.Ctx.Err(), context.Canceled) && !c.Acked()
}

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

// WaitContext returns the context in which to wait on behalf of the message. It is the message's own, without its end
// if the handler acked the message.
func (c *Call) WaitContext() context.Context {
	if c.Acked() {
		return context.WithoutCancel(c.Ctx)
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
	})(sub)
}

// PutBack returns the error that gives back a message that did not fail, to come again later. To the parts further out
// the message has gone away.
func (c *Call) PutBack(err error) error {
	c.putBack = true
	return givenBack{c.Abort(err)}
}

// givenBack is the error of PutBack. A chain further out recognises it, if parts are attached one by one.
type givenBack struct{ error }

func (e givenBack) Unwrap() error { return e.error }

// GaveBack reports whether err gives its message back, uncounted.
func GaveBack(err error) bool {
	failure, ok := causes.Find[*classify.Failure](err)
	return ok && failure.Verdict.Class == classify.ClassAborted
}

// Abort returns the error that gives back a message that went away: nothing is published and nothing counted. The error
// is a context.Canceled too, which the router does not log as a failure.
func (c *Call) Abort(err error) error {
	if GaveBack(err) {
		return err
	}
	return &classify.Failure{
		Err:     errors.Join(context.Canceled, err),
		Verdict: classify.Verdict{Class: classify.ClassAborted},
	}
}

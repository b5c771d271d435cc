package chain

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
)

// Aborted tells whether the message of this call went away, rather than failed: its context was cancelled although
// nobody acked it, or a part put it back. A deadline that passed is a failure in time. A message acked by its handler,
// which ends the context too, has not gone away.
func (c *Call) Aborted() bool {
	return c.putBack || errors.Is(c.Ctx.Err(), context.Canceled) && !c.Acked()
}

// Acked tells whether the handler acked the message itself.
func (c *Call) Acked() bool { return closed(c.Msg.Acked()) }

// Nacked tells whether the handler nacked the message itself: it is on its way back already.
func (c *Call) Nacked() bool { return closed(c.Msg.Nacked()) }

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// WaitContext is the context in which to wait on behalf of the message: its own, or, where its handler acked it and so
// ended that one, a context without end.
func (c *Call) WaitContext() context.Context {
	if c.Acked() {
		return context.WithoutCancel(c.Ctx)
	}
	return c.Ctx
}

type ownKey struct{}

// IsOwn tells whether ctx is of a message consumed by one of Spillway's own handlers.
func IsOwn(ctx context.Context) bool { return ctx.Value(ownKey{}) != nil }

// Own wraps the subscriber of a handler of Spillway's own, so that a router-level chain lets its messages pass.
func Own(sub message.Subscriber) (message.Subscriber, error) {
	return message.MessageTransformSubscriberDecorator(func(msg *message.Message) {
		msg.SetContext(context.WithValue(msg.Context(), ownKey{}, true))
	})(sub)
}

// PutBack returns the error with which a message is given back that did not fail: it is to come again later. For the
// parts further out it has gone away.
func (c *Call) PutBack(err error) error {
	c.putBack = true
	return givenBack{c.Abort(err)}
}

// givenBack tells a chain further out, where parts are attached one by one, that the message was put back.
type givenBack struct{ error }

func (e givenBack) Unwrap() error { return e.error }

// GaveBack reports whether err gives its message back, uncounted.
func GaveBack(err error) bool {
	failure, ok := classify.AsFailure(err)
	return ok && failure.Verdict.Class == classify.ClassAborted
}

// Abort returns the error with which a message that went away is given back: nothing is published and nothing counted.
// It is a context.Canceled too, which the router does not log as a failure.
func (c *Call) Abort(err error) error {
	if GaveBack(err) {
		return err
	}
	return &classify.Failure{
		Err:     errors.Join(context.Canceled, err),
		Verdict: classify.Verdict{Class: classify.ClassAborted},
	}
}

package chain

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
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

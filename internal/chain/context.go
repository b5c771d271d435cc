package chain

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/graceful"
	"github.com/watermill-spillway/spillway/internal/placing"
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

package spillway

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/foreign"
	"github.com/watermill-spillway/spillway/internal/graceful"
)

// drains gives the subscriptions of a router the time in which their handlers may finish.
type drains struct {
	configured time.Duration
	router     time.Duration // its CloseTimeout; 0 if it is not known
}

func (ch *Channel) drainsOf(router *message.Router) drains {
	return drains{ch.drainTimeout, foreign.CloseTimeout(router)}
}

// check refuses a time in which the router does not wait.
func (d drains) check() error {
	if d.router > 0 && d.configured >= d.router {
		return fmt.Errorf("spillway: Config.DrainTimeout is %s, and the router gives up closing after its CloseTimeout of %s, "+
			"while handlers run: lower the one, or raise the other", d.configured, d.router)
	}
	return nil
}

// timeout leaves half of a short CloseTimeout for what comes after the handlers.
func (d drains) timeout() time.Duration {
	if d.configured == 0 && d.router > 0 {
		return min(graceful.Timeout, d.router/2)
	}
	return d.configured
}

// decorate is the router's subscriber decorator that says so.
func (d drains) decorate(sub message.Subscriber) (message.Subscriber, error) {
	return &draining{sub, d.timeout()}, nil
}

type draining struct {
	message.Subscriber
	timeout time.Duration
}

func (d *draining) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if d.timeout != 0 {
		ctx = graceful.With(ctx, d.timeout)
	}
	return d.Subscriber.Subscribe(ctx, topic)
}

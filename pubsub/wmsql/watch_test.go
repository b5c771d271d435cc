package wmsql_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// Promise P3: when the connection is lost under a silent handler, its context ends, and the message comes again.
func TestConnectionLostUnderIdleHandler(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		var seen deliveries
		sub := b.subscriber(func(c *wmsql.SubscriberConfig) { c.AckDeadline = time.Hour })
		b.run(sub, func(msg *message.Message) ([]*message.Message, error) {
			if seen.add(msg.UUID) > 1 {
				return b.whole(msg)
			}
			if err := errors.Join(b.write(msg, "half"), b.kill(msg)); err != nil {
				return nil, err
			}
			testkit.Receive(b, "the context ends", msg.Context().Done())
			testkit.Is(t, msg.Context().Err(), context.Canceled)
			return nil, msg.Context().Err()
		})
		b.publish("a")
		b.account([]string{"a"})
	})
}

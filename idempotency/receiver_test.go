package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/observe"
)

func atOnce(t *testing.T, n int, f func(int) error) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			testkit.Is(t, f(i), nil)
		})
	}
	wg.Wait()
}

// Decision 8: a handler that acks its message ends the message's context, and commits even so; also when an earlier
// attempt acked it.
func TestHandlerAcksItself(t *testing.T) {
	onDatabases(t, func(c *cell) {
		r := c.receiver(idempotency.ReceiverConfig{})
		for i, failures := range []int{0, 1} {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			msg := newMessage(fmt.Sprint(i))
			msg.SetContext(ctx)
			left := failures
			h := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
				msg.Ack()
				cancel()
				time.Sleep(10 * time.Millisecond) // database/sql rolls back on a goroutine of its own
				if left--; left >= 0 {
					return nil, errors.New("after the ack")
				}
				return c.write(msg)
			})
			for range failures {
				testkit.Require(c, testkit.Err(h(msg)) != nil, "this attempt fails")
			}
			testkit.Must(h(msg))
			c.rows(i+1, i+1)
		}
	})
}

// Decision 6: by default the consumer is the router's name for the handler; outside a router it must be set. Two
// handlers with one consumer name are one consumer, which is reported, once.
func TestConsumer(t *testing.T) {
	c, log := newCell(t, onSQLite), &testkit.Log{}
	for consumer, effects := range map[string]int{"": 2, "billing": 1} {
		r := testkit.Must(idempotency.NewReceiver(c.store(c.db),
			idempotency.ReceiverConfig{Consumer: consumer, Shared: observe.Shared{Logger: log}}))
		if consumer == "" {
			_, err := r.Middleware(c.write)(newMessage("outside"))
			testkit.Check(t, class(err) == classify.ClassPermanent, "%v", err)
			testkit.Says(t, err, "ReceiverConfig.Consumer")
		}
		source := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
		stop := testkit.RunRouter(t, nil, func(router *message.Router) {
			router.AddMiddleware(r.Middleware)
			for _, name := range []string{"first", "second"} {
				router.AddConsumerHandler(name, "orders", source, func(msg *message.Message) error {
					return testkit.Err(c.write(msg))
				})
			}
		})
		for range 2 {
			testkit.NoError(t, source.Publish("orders", newMessage("of "+consumer)))
		}
		stop()
		c.rows(effects, effects)
		c.exec(`DELETE FROM effects`, `DELETE FROM spillway_keys`)
	}
	notified := log.Errors()
	testkit.Check(t, len(notified) == 1 && notified[0].Fields["consumer"] == "billing" &&
		notified[0].Fields["first"] != notified[0].Fields["second"], "%v", notified)
}

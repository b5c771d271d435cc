package wmamqp_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
	"github.com/watermill-spillway/spillway/settings"
)

// The end of a service whose handlers are all busy, as at SIGTERM, logs no error: neither watermill-amqp's loops nor our
// own call the end one, nor what is requeued with it.
func TestOrderlyEndLogsNoError(t *testing.T) {
	t.Parallel()
	b, logger := newBroker(t), &testkit.Log{}
	var topics []string
	for range 4 {
		topics = append(topics, b.queue("quorum"))
		b.numbered(topics[len(topics)-1], 20)
	}
	dead := b.publisher(func(c *wmamqp.PublisherConfig) { c.Logger = logger })
	queue := testkit.Must(poison.NewQueue(dead, poison.QueueConfig{
		Shared: settings.Shared{Logger: logger, Naming: naming.Scheme{DeadLetter: topics[0]}}, Origin: wmamqp.Origin,
	}))
	router := testkit.Must(message.NewRouter(message.RouterConfig{CloseTimeout: patience}, logger))
	router.AddMiddleware(queue.Middleware)
	var busy atomic.Int32
	var subs []*wmamqp.Subscriber
	for i, topic := range topics {
		sub := b.subscriber(patient, func(c *wmamqp.SubscriberConfig) { c.Logger, c.InFlight = logger, 1+3*(i%2) })
		subs = append(subs, sub)
		router.AddConsumerHandler(topic, topic, sub, func(msg *message.Message) error {
			busy.Add(1)
			<-msg.Context().Done()
			if i < 2 { // it finishes
				return nil
			}
			return msg.Context().Err()
		})
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	eventually(t, "all handlers are busy", func() bool { return busy.Load() == 10 })
	stop()
	testkit.NoError(t, testkit.Receive(t, "the end", ended))
	for _, sub := range subs { // Run may leave them open when its context ends
		b.closed("the subscriber", sub.Close())
	}
	b.closed("the publisher", dead.Close())
	time.Sleep(500 * time.Millisecond) // for what comes late
	errors := logger.Errors()
	testkit.Check(t, len(errors) == 0, "logged %v", errors)
}

package conformance_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// amqpBroker is RabbitMQ as the suite's target sees it, with queues of one type.
type amqpBroker struct {
	uri       string
	arguments amqp091.Table
}

func queueType(name string) amqp091.Table { return amqp091.Table{amqp091.QueueTypeArg: name} }

func (b amqpBroker) config(uri string) amqp.Config {
	config := amqp.NewDurableQueueConfig(uri)
	config.Queue.Arguments = b.arguments
	return config
}

func (b amqpBroker) publisher(t testing.TB, uri string, confirmTimeout time.Duration) *wmamqp.Publisher {
	t.Helper()
	return testkit.Must(
		wmamqp.NewPublisher(uri, wmamqp.PublisherConfig{AMQP: b.config(uri), ConfirmTimeout: confirmTimeout}))
}

func (b amqpBroker) subscriber(t testing.TB, group, uri string) *wmamqp.Subscriber {
	t.Helper()
	config := wmamqp.SubscriberConfig{AMQP: b.config(uri)}
	config.AMQP.Marshaler = pickyAMQP{}
	if strings.Contains(group, ".retry") { // a stage's
		config.InFlight = 8
	}
	sub := testkit.Must(wmamqp.NewSubscriber(uri, config))
	// A router that closes cancels its handlers' contexts too, and of a handler that sees that first leaves the
	// subscriber open.
	t.Cleanup(func() { _ = sub.Close() })
	return sub
}

// do does something on a connection of its own, because the broker may have been restarted.
func (b amqpBroker) do(t testing.TB, f func(*amqp091.Channel) error) {
	t.Helper()
	conn := testkit.Must(amqp091.Dial(b.uri))
	defer func() { _ = conn.Close() }()
	testkit.NoError(t, f(testkit.Must(conn.Channel())))
}

func (b amqpBroker) createQueue(t testing.TB, topic string) { b.declare(t, topic, nil) }

func (b amqpBroker) declare(t testing.TB, topic string, more amqp091.Table) {
	t.Helper()
	arguments := maps.Clone(more)
	if arguments == nil {
		arguments = amqp091.Table{}
	}
	maps.Copy(arguments, b.arguments)
	b.do(t, func(c *amqp091.Channel) error {
		_, err := c.QueueDeclare(topic, true, false, false, false, arguments)
		return err
	})
	t.Cleanup(func() { b.deleteQueue(t, topic) })
}

func (b amqpBroker) deleteQueue(t testing.TB, topic string) {
	t.Helper()
	b.do(t, func(c *amqp091.Channel) error {
		_, err := c.QueueDelete(topic, false, false, false)
		return err
	})
}

// send publishes as a foreign program would.
func (b amqpBroker) send(t testing.TB, topic string, publishing amqp091.Publishing) {
	t.Helper()
	b.do(t, func(c *amqp091.Channel) error {
		return c.PublishWithContext(context.Background(), "", topic, true, false, publishing)
	})
}

// readOnly makes a queue that is full and refuses what comes then. A policy would need RabbitMQ's own tools.
func (b amqpBroker) readOnly(t testing.TB, topic string) (writable func()) {
	t.Helper()
	const filler, room = "filler", 10
	b.declare(t, topic, amqp091.Table{amqp091.QueueMaxLenArg: room, amqp091.QueueOverflowArg: amqp091.QueueOverflowRejectPublish})
	full := 0
	b.do(t, func(c *amqp091.Channel) error {
		if err := c.Confirm(false); err != nil {
			return err
		}
		for refused := 0; refused < 3; { // a quorum queue refuses a little late
			confirm, err := c.PublishWithDeferredConfirmWithContext(context.Background(), "", topic, true, false, amqp091.Publishing{Type: filler})
			if err != nil {
				return err
			}
			if confirm.Wait() {
				full++
			} else {
				refused++
			}
		}
		return nil
	})
	return func() {
		b.do(t, func(c *amqp091.Channel) error {
			for range full {
				d, _, err := c.Get(topic, true)
				if err != nil {
					return err
				}
				testkit.Check(t, d.Type == filler, "a letter came into the full queue")
			}
			return nil
		})
	}
}

// keyed uses a queue of its own with a single active consumer, which the publisher declares.
func (b amqpBroker) keyed(t testing.TB, _ string) (message.Publisher, message.Subscriber) {
	config := b.config(b.uri)
	config.Queue.Arguments = amqp091.Table{amqp091.SingleActiveConsumerArg: true,
		amqp091.QueueTypeArg: amqp091.QueueTypeClassic}
	config.Queue.GenerateName = func(topic string) string { return topic + ".keyed" }
	config.Publish.GenerateRoutingKey = config.Queue.GenerateName
	pub := testkit.Must(wmamqp.NewPublisher(b.uri, wmamqp.PublisherConfig{AMQP: config}))
	sub := testkit.Must(wmamqp.NewSubscriber(b.uri, wmamqp.SubscriberConfig{AMQP: config, InFlight: 16,
		Key: func(msg *message.Message) string { return msg.Metadata.Get("tenant") }}))
	t.Cleanup(func() { _ = sub.Close() })
	return declaring{pub}, sub
}

// declaring declares the queue of what it publishes.
type declaring struct{ *wmamqp.Publisher }

func (p declaring) Publish(topic string, messages ...*message.Message) error {
	if err := p.InitializeTopics(topic); err != nil {
		return err
	}
	return p.Publisher.Publish(topic, messages...)
}

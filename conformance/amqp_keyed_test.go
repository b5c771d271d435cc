package conformance_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

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

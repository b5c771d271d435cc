package wmamqp_test

import (
	"context"
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

var kinds = []string{"classic", "quorum"}

func acks(t testing.TB, msg *message.Message) {
	t.Helper()
	testkit.Check(t, msg.Ack(), "%s cannot be acked", msg.UUID)
}

// Feature D8: headers that are no strings are delivered, and a quorum queue's count. A message that is delivered again
// is the same to the last byte of its metadata, so that a letter which arrives twice
// is one in the dead-letter store: a quorum queue's count is the delivery's, not the message's.
func TestRedeliveryIsTheSameMessage(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		for name, headers := range map[string]amqp091.Table{"foreign": everyType(), "bare": nil} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				t.Parallel()
				b := newBroker(t)
				topic := b.queue(kind)
				b.send(topic, amqp091.Publishing{Headers: headers, MessageId: "m", ContentType: "text/plain"})
				messages := b.subscribe(b.subscriber(), topic)
				first := b.next(messages)
				before := maps.Clone(first.Metadata)
				first.Nack()
				again := b.next(messages)
				testkit.Check(t, maps.Equal(before, again.Metadata), "first %v\nagain %v", before, again.Metadata)
				d, _ := wmamqp.Counts(again)
				testkit.Check(t, d.Redelivered && d.Count == b2i(kind == "quorum"), "%+v", d)
				testkit.Check(t, headers == nil || again.Metadata["int16"] == "-1600", "%v", again.Metadata)
				acks(t, again)
			})
		}
	}
}

// Feature D1: the origin says which queue, exchange and routing key a message came by, and when it was sent. A message
// from elsewhere has one too.
func TestOrigin(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic()
	messages := b.subscribe(b.subscriber(func(c *wmamqp.SubscriberConfig) {
		c.AMQP = amqp.NewDurablePubSubConfig(b.uri, func(topic string) string { return topic + ".other" })
		c.AMQP.Exchange.Type = "topic"
		c.AMQP.QueueBind.GenerateRoutingKey = func(string) string { return "eu.#" }
	}), topic)
	at := time.Unix(1700000000, 0)
	b.must(func(c *amqp091.Channel) error {
		return c.Publish(topic, "eu.de", true, false, amqp091.Publishing{MessageId: "m", Timestamp: at})
	})
	for msg, want := range map[*message.Message]poison.Origin{
		b.next(messages): {
			Exchange: topic, RoutingKey: "eu.de", ConsumerGroup: topic + ".other", MessageID: "m", Timestamp: at,
		},
		nil:          {},
		{UUID: "id"}: {MessageID: "id"},
	} {
		got := wmamqp.Origin(msg)
		testkit.Check(t, reflect.DeepEqual(got, want), "%+v, not %+v", got, want)
	}
}

// Feature D5: a queue with other arguments is consumed as it is: a dead-letter queue is a quorum queue, whatever the
// live one is.
func TestQueueWithOtherArguments(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.queue("quorum")
	sub := b.subscriber()
	testkit.NoError(t, sub.Declare(topic))
	b.send(topic, amqp091.Publishing{MessageId: "m"})
	acks(t, b.next(b.subscribe(sub, topic)))
	fresh := b.topic()
	if err := sub.Declare(fresh); err != nil || b.ready(fresh) != 0 {
		t.Error(err)
	}
	_, err := sub.Subscribe(context.Background(), "amq.forbidden")
	says(t, err, "amq.forbidden")
}

package wmamqp_test

import (
	"strings"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// unlimited are arguments that RabbitMQ knows from version 4 on.
var unlimited = amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum, "x-delivery-limit": int32(-1)}

// isOld reports whether the broker is RabbitMQ 3.
func (b *broker) isOld() bool {
	version, _ := b.conn.Properties["version"].(string)
	return strings.HasPrefix(version, "3.")
}

func (b *broker) declareWith(name string, arguments amqp091.Table) {
	b.Helper()
	b.must(func(c *amqp091.Channel) error {
		_, err := c.QueueDeclare(name, true, false, false, false, arguments)
		return err
	})
}

// Fact, feature D16: RabbitMQ 3 accepts x-delivery-limit -1 and drops a message when it is requeued for the first
// time. RabbitMQ 4 keeps it.
func TestFactNegativeDeliveryLimit(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	name := b.topic()
	b.declareWith(name, unlimited)
	b.send(name, amqp091.Publishing{MessageId: "returned"})
	b.send(name, amqp091.Publishing{MessageId: "behind it"})
	b.must(func(c *amqp091.Channel) error {
		if err := c.Qos(1, 0, false); err != nil {
			return err
		}
		deliveries, err := c.Consume(name, "", false, false, false, false, nil)
		if err != nil {
			return err
		}
		first := <-deliveries
		if err := first.Nack(false, true); err != nil {
			return err
		}
		want := "returned"
		if b.isOld() {
			want = "behind it"
		}
		if next := <-deliveries; first.MessageId != "returned" || next.MessageId != want {
			t.Errorf("RabbitMQ %v: behind %q comes %q", b.conn.Properties["version"], first.MessageId, next.MessageId)
		}
		return nil
	})
}

// Feature D16, promise P1: where x-delivery-limit -1 drops messages it is refused: as an argument of a source queue or
// of a dead-letter queue, and on such queues that are there. Where it means no limit it is taken.
func TestNegativeDeliveryLimit(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	wants := func(err error, words ...string) {
		t.Helper()
		if b.isOld() {
			says(t, err, append(words, "x-delivery-limit -1")...)
		} else if err != nil {
			t.Error(err)
		}
	}
	queue := func(arguments amqp091.Table) string {
		name := b.topic()
		if arguments != nil {
			b.declareWith(name, arguments)
		}
		return name
	}
	for _, row := range map[string]struct{ given, there amqp091.Table }{
		"given":            {given: unlimited},
		"given and there":  {given: unlimited, there: unlimited},
		"there":            {given: wmamqp.QuorumQueue(nil), there: unlimited},
		"as a larger type": {given: wmamqp.QuorumQueue(amqp091.Table{"x-delivery-limit": int64(-1)})},
	} {
		source := b.subscriber(func(c *wmamqp.SubscriberConfig) { c.AMQP.Queue.Arguments = row.given })
		topic := queue(row.there)
		wants(testkit.Err(source.Subscribe(t.Context(), topic)), "requeued for the first time", "leave the argument out")
		wants(source.Declare(topic), "delete the queue")
		dead := b.publisher(func(c *wmamqp.PublisherConfig) { c.AMQP.Queue.Arguments = row.given })
		wants(dead.InitializeTopics(queue(row.there)), "loses letters", "requeued for the first time")
		dead = b.publisher(func(c *wmamqp.PublisherConfig) { c.AMQP.Queue.Arguments, c.AllowLossyTopics = row.given, true })
		testkit.NoError(t, dead.InitializeTopics(queue(row.there)))
	}
}

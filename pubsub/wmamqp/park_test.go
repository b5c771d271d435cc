package wmamqp_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/destination"
)

// Feature D5, decision 14: a redrive makes the queues of parked and quarantined letters when it needs them. They are
// durable, may be asked for again, and one that loses letters is refused.
func TestInitializeParkAndQuarantine(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic(".dlq.quarantine", ".quarantine")
	p := b.publisher()
	queues := []string{topic + ".dlq.parked", topic + ".quarantine"}
	for range 2 {
		if err := destination.Initialize(p, topic+".dlq", queues...); err != nil {
			t.Fatal(err)
		}
	}
	for _, queue := range queues {
		if err := p.Publish(queue, message.NewMessage("m", nil)); err != nil {
			t.Error(err)
		}
	}
	b.must(func(c *amqp091.Channel) error {
		_, err := c.QueueDeclare(topic+".dlq.quarantine", true, false, false, false, amqp091.Table{"x-message-ttl": 1000})
		return err
	})
	err := destination.Initialize(p, topic+".dlq", topic+".dlq.quarantine")
	says(t, err, ".dlq.quarantine", "x-message-ttl 1000")
}

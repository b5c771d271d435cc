package wmamqp_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/destination"
)

// Feature D5, decision 14: what a redrive publishes to is made when it is asked for, by the publisher as by the interface:
// parked and quarantined letters have a durable queue, which may be asked for again, and one that loses letters is refused.
func TestInitializeParkAndQuarantine(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic(".dlq.quarantine", ".quarantine")
	p := b.publisher()
	destinations := []string{topic + ".dlq.parked", topic + ".quarantine"}
	for range 2 {
		if err := destination.Initialize(p, topic+".dlq", destinations...); err != nil {
			t.Fatal(err)
		}
	}
	for _, destination := range destinations {
		if err := p.Publish(destination, message.NewMessage("m", nil)); err != nil {
			t.Error(err)
		}
	}
	b.must(func(c *amqp091.Channel) error {
		_, err := c.QueueDeclare(topic+".dlq.quarantine", true, false, false, false, amqp091.Table{"x-message-ttl": 1000})
		return err
	})
	says(t, destination.Initialize(p, topic+".dlq", topic+".dlq.quarantine"), ".dlq.quarantine", "x-message-ttl 1000")
}

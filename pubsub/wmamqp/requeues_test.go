package wmamqp_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// Feature D10: what a quorum queue counts of other processes counts from the second delivery on. What this process
// requeued itself does not. What a producer says counts for nothing on the first delivery, and a classic queue knows
// nothing. Of a message from elsewhere nothing is known, nor of a new one with the same id.
func TestDeliveryCount(t *testing.T) {
	t.Parallel()
	if n, ok := wmamqp.DeliveryCount(message.NewMessage("m", nil)); n != 0 || ok {
		t.Errorf("of another: %d, %v", n, ok)
	}
	for kind, want := range map[string]int{"quorum": 1, "classic": 0} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			topic := b.queue(kind)
			forged := amqp091.Table{}
			if kind == "quorum" {
				forged["x-delivery-count"] = int64(99)
			}
			b.send(topic, amqp091.Publishing{MessageId: "m", Headers: forged})
			other := b.subscriber(func(c *wmamqp.SubscriberConfig) { *wmamqp.SettleGrace(c) = time.Millisecond })
			if n, ok := wmamqp.DeliveryCount(b.next(b.subscribe(other, topic))); n != 0 || !ok {
				t.Errorf("first delivery: %d, %v", n, ok)
			}
			b.closed("the subscriber", other.Close())
			messages := b.subscribe(b.subscriber(inFlight(1)), topic)
			const requeued = 5
			for i := range requeued + 1 {
				msg := b.next(messages)
				d, _ := wmamqp.Counts(msg)
				if n, ok := wmamqp.DeliveryCount(msg); n != want || !ok || d.Count != want*(i+1) || d.Requeued != want*i {
					t.Fatalf("delivery %d: %d, %v of %+v, want %d", i+2, n, ok, d, want)
				}
				if i == requeued {
					msg.Ack()
				} else {
					msg.Nack()
				}
			}
			b.send(topic, amqp091.Publishing{MessageId: "m"})
			again := b.next(messages)
			if d, _ := wmamqp.Counts(again); d.Count != 0 || d.Requeued != 0 {
				t.Errorf("a new message with the same id: %+v", d)
			}
			acks(t, again)
		})
	}
}

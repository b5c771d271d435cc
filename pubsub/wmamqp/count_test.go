package wmamqp_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// Feature D10: a quorum queue's own count of what came back is told from the second delivery on. What a producer says
// counts for nothing on the first, and a classic queue knows nothing.
func TestDeliveryCount(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string][]int{"quorum": {0, 1, 2}, "classic": {0, 0, 0}} {
		t.Run(kind, func(t *testing.T) {
			b := newBroker(t)
			topic := b.queue(kind)
			forged := amqp091.Table{}
			if kind == "quorum" {
				forged["x-delivery-count"] = int64(99)
			}
			b.send(topic, amqp091.Publishing{MessageId: "m", Headers: forged})
			messages := b.subscribe(b.subscriber(), topic)
			for i, want := range want {
				msg := b.next(messages)
				if n, ok := wmamqp.DeliveryCount(msg); n != want || !ok {
					t.Errorf("delivery %d: %d, %v, want %d", i, n, ok, want)
				}
				if i == 2 {
					msg.Ack()
				} else {
					msg.Nack()
				}
			}
		})
	}
}

// Feature D10: of a message from elsewhere nothing is known.
func TestDeliveryCountOfOthers(t *testing.T) {
	if n, ok := wmamqp.DeliveryCount(message.NewMessage("m", nil)); n != 0 || ok {
		t.Errorf("%d, %v", n, ok)
	}
}

package wmamqp

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/poison"
)

// Delivery is what the broker says of a delivery besides the message.
type Delivery struct {
	Queue      string
	Exchange   string
	RoutingKey string
	// Redelivered tells whether the message was delivered before, to anybody.
	Redelivered bool
	// Count is how often a quorum queue has delivered the message before and had it back. On a classic queue it is 0.
	Count int
	// Timestamp is the producer's, zero where it gave none.
	Timestamp time.Time
}

type deliveryKey struct{}

func withDelivery(ctx context.Context, queue string, d *amqp091.Delivery) context.Context {
	return context.WithValue(ctx, deliveryKey{}, Delivery{
		Queue: queue, Exchange: d.Exchange, RoutingKey: d.RoutingKey, Redelivered: d.Redelivered,
		Count: countOf(d.Headers[deliveryCount]), Timestamp: d.Timestamp,
	})
}

// countOf reads the count, which a producer may have forged on a classic queue.
func countOf(header any) int { return boundedtext.Count(text(header)) }

// DeliveryFromContext returns the delivery of a message of Subscriber, by its context.
func DeliveryFromContext(ctx context.Context) (Delivery, bool) {
	d, ok := ctx.Value(deliveryKey{}).(Delivery)
	return d, ok
}

// Origin is a poison.QueueConfig.Origin: the topic, the queue as the consumer group, the exchange, the routing key, the
// producer's timestamp and the id. Of a message that does not come from Subscriber it knows the topic and the id.
func Origin(msg *message.Message) poison.Origin {
	if msg == nil {
		return poison.Origin{}
	}
	ctx := msg.Context()
	d, _ := DeliveryFromContext(ctx)
	return poison.Origin{
		Topic: message.SubscribeTopicFromCtx(ctx), MessageID: msg.UUID, ConsumerGroup: d.Queue,
		Exchange: d.Exchange, RoutingKey: d.RoutingKey, Timestamp: d.Timestamp,
	}
}

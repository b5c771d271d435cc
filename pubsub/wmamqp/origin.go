package wmamqp

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/poison"
)

// Delivery is what the broker says about a delivery beside the message.
type Delivery struct {
	Queue      string
	Exchange   string
	RoutingKey string
	// Redelivered reports whether the message was delivered before, to any consumer.
	Redelivered bool
	// Count is how often a quorum queue delivered the message before and got it back. On a classic queue it is 0.
	Count int
	// GivenBack is how many deliveries in Count this Subscriber is known to have given back itself, by a nack or on a
	// connection that was lost. It remembers at most 1000 messages, each for an hour after it was last given back.
	GivenBack int
	// Timestamp is the producer's, or zero.
	Timestamp time.Time
}

type deliveryKey struct{}

func deliveryOf(queue string, givenBack int, d *amqp091.Delivery) Delivery {
	return Delivery{
		Queue: queue, Exchange: d.Exchange, RoutingKey: d.RoutingKey, Redelivered: d.Redelivered,
		Count: countOf(d.Headers[deliveryCount]), GivenBack: givenBack, Timestamp: d.Timestamp,
	}
}

// countOf reads the count, which a producer may have forged on a classic queue.
func countOf(header any) int { return boundedtext.Count(text(header)) }

// DeliveryFromContext returns the delivery of a message from its context. It returns false if the message does not come
// from Subscriber.
func DeliveryFromContext(ctx context.Context) (Delivery, bool) {
	d, ok := ctx.Value(deliveryKey{}).(Delivery)
	return d, ok
}

// Origin returns the origin of a message on RabbitMQ: the topic, the queue as the consumer group, the exchange, the
// routing key, the producer's timestamp and the id. Use it as poison.QueueConfig.Origin. A message that does not come
// from Subscriber has only topic and id.
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

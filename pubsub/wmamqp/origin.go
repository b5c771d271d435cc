package wmamqp

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
	"github.com/watermill-spillway/spillway/poison"
)

// info is what the broker says about a delivery beside the message.
type info struct {
	queue, exchange, routingKey string
	redelivered                 bool // it was delivered before, to any consumer
	// how often a quorum queue delivered it before and got it back; 0 on a classic queue
	count int
	// how many deliveries in count this Subscriber is known to have requeued itself
	requeued  int
	timestamp time.Time // the producer's, or zero
}

type deliveryKey struct{}

func deliveryOf(queue string, requeued int, d *amqp091.Delivery) info {
	return info{
		queue: queue, exchange: d.Exchange, routingKey: d.RoutingKey, redelivered: d.Redelivered,
		count: countIn(d), requeued: requeued, timestamp: d.Timestamp,
	}
}

// countIn reads the count of a delivery. A producer may have forged it: on a first delivery, on a classic queue, and
// from RabbitMQ 4.3 on, where the queue writes none as long as it counted nothing. There it is no more than what the
// queue counts beside it.
func countIn(d *amqp091.Delivery) int {
	if !d.Redelivered {
		return 0
	}
	count := countOf(d.Headers[deliveryCount])
	if acquired, is := d.Headers[acquiredCount]; is {
		count = min(count, countOf(acquired))
	}
	return count
}

func countOf(header any) int { return boundedtext.Count(text(header)) }

// infoIn returns the info in a message's context. It returns false if the message does not come from Subscriber.
func infoIn(ctx context.Context) (info, bool) {
	d, ok := ctx.Value(deliveryKey{}).(info)
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
	d, _ := infoIn(ctx)
	return poison.Origin{
		Topic: message.SubscribeTopicFromCtx(ctx), MessageID: msg.UUID, ConsumerGroup: d.queue,
		Exchange: d.exchange, RoutingKey: d.routingKey, Timestamp: d.timestamp,
	}
}

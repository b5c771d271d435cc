package wmamqp

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/hold/recent"
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

// DeliveryCount returns how often a quorum queue delivered the message before and got it back, without the times that
// this process is known to have requeued it itself, by a nack or on a connection that was lost: it remembers 1000
// messages, each for an hour. Use it as Delivered of crashlimit.Config. On a classic queue,
// which does not count, it is 0. It returns false for a message that does not come from Subscriber.
//
// RabbitMQ counts every delivery that came back, and not only those that ended the process. What other processes gave
// back counts, and so do deployments; from RabbitMQ 4.3 on they count with Key alone. A process that is killed had up to SubscriberConfig.MaxPlacing messages of a
// queue open, and each is counted. So set Max, 20 by default for this count, higher than those that a message can have.
// Set the queue's own x-delivery-limit higher than Max, or from RabbitMQ 4 on to -1: otherwise RabbitMQ may drop the
// message before its letter is published.
func DeliveryCount(msg *message.Message) (int, bool) {
	d, ok := infoIn(msg.Context())
	return max(d.count-d.requeued, 0), ok
}

// remembered is how long the times are remembered that a message was requeued. It is more than any MaxHold under the
// broker's consumer_timeout.
const remembered = time.Hour

// requeues remembers how often this process requeued messages of a queue itself, and the queue counted it. The
// process lives, so no message crashed it then. From RabbitMQ 4.3 on a quorum queue does not count a nack.
type requeues struct {
	mu sync.Mutex
	of recent.Memory[returned]
}

// returned is what is known of one message.
type returned struct {
	times int // that the queue counted
	back  bool
	count int // the queue's, when the message was requeued last
}

func newRequeues() requeues { return requeues{of: recent.For[returned](remembered)} }

// add notes that a message is requeued. A message without an id is not remembered.
func (g *requeues) add(queue, id string, d *amqp091.Delivery) {
	if id == "" {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	one := g.of.Note(recent.Named(queue, id), time.Now())
	one.back, one.count = true, countIn(d)
}

// times returns how often a message was requeued, as far as the queue counted it.
func (g *requeues) times(queue, id string, d *amqp091.Delivery) int {
	if !d.Redelivered {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	one := g.of.Get(recent.Named(queue, id))
	if one == nil {
		return 0
	}
	if one.back && countIn(d) > one.count {
		one.times++
	}
	one.back = false
	return one.times
}

func (g *requeues) forget(queue, id string, d *amqp091.Delivery) {
	if !d.Redelivered {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.of.Forget(recent.Named(queue, id))
}

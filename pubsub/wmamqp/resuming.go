package wmamqp

import (
	"context"
	"sync"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
)

// beginAgain is the wait before another attempt to consume, when the broker refused one.
const beginAgain = time.Second

// notResumed logs a failed attempt of a consumer to begin again. The log has one line for all consumers when that
// begins, and one when the first has begun.
func (c *consumer) notResumed(err error) {
	event := eventConsumeStillUnavailable
	if c.sub.failing.CompareAndSwap(0, time.Now().UnixNano()) {
		event = eventConsumeNotResumed
	}
	event.Write(c.sub.config.Logger, err, logging.Fields{logging.Queue: c.sub.queue, logging.Wait: beginAgain})
}

// resumed notes that the consumer has begun.
func (c *consumer) resumed() {
	if since := c.sub.failing.Swap(0); since > 0 {
		lasted := time.Since(time.Unix(0, since)).Round(time.Millisecond).String()
		eventConsumeResumed.Write(c.sub.config.Logger, nil, logging.Fields{logging.Queue: c.sub.queue, "lasted": lasted})
	}
}

// consumersLook is how often the broker is asked whether it has consumers of the queue.
const consumersLook = 10 * time.Second

// watch begins again to consume when the broker has lost the consumers, and said nothing: a quorum queue can do so when
// nodes of its cluster hang or are cut off, and then come back. The channels stay open, and nothing comes. Two answers
// in a row must say it, because the first can be of a consumer that just begins.
func (s *subscription) watch(ctx context.Context, conn *connection) {
	var none int
	for timing.Wait(ctx, s.config.consumersLook) {
		if consumers, err := consumersOf(conn, s.queue); err != nil || consumers > 0 {
			none = 0
			continue
		}
		if none++; none < 2 {
			continue
		}
		none = 0
		eventConsumersVanished.Write(s.config.Logger, nil, logging.Fields{logging.Queue: s.queue})
		var closing sync.WaitGroup
		for _, c := range s.consumers {
			closing.Go(func() { _ = c.watched.Load().Close() })
		}
		closing.Wait()
	}
}

// consumersOf asks the broker how many consumers a queue has.
func consumersOf(conn *connection, queue string) (int, error) {
	open, err := conn.open()
	if err != nil {
		return 0, err
	}
	var found amqp091.Queue
	err = onChannel(open, func(c *amqp091.Channel) (err error) {
		found, err = c.QueueDeclarePassive(queue, false, false, false, false, nil)
		return err
	})
	return found.Consumers, err
}

// Adapters for Kafka, RabbitMQ and SQL.
var (
	// once: Compare arguments: `loses` says what the queue drops.
	eventQueueDiffers = logging.InfoEvent("queue_differs",
		"The dead-letter queue is there with other arguments; it is taken as it is")
	// once: Check the queue's arguments by hand.
	eventQueueUnknown = logging.InfoEvent("queue_unknown",
		"The dead-letter queue is there; the broker does not show whether it keeps its letters. It is taken as it is")
	// outage: Repair the broker, or the way to it.
	eventConnectionLost = logging.ErrorEvent("connection_lost", "The connection to RabbitMQ is lost; it is dialled again")
	// outage: nothing
	eventConnectionNotDialled = logging.InfoEvent("connection_not_dialled",
		"Cannot reconnect to RabbitMQ; it is tried again until it answers")
	// each: nothing
	eventConnectionStillUnavailable = logging.DebugEvent("connection_still_unavailable", "Cannot reconnect to RabbitMQ yet")
	// outage: nothing
	eventConnectionResumed = logging.InfoEvent("connection_resumed", "Connected to RabbitMQ again")
	// each: Let the handler end with its context.
	eventHandlerIgnoresContext = logging.InfoEvent("handler_ignores_context",
		"A handler ignores its context and runs on; its message is requeued")
	// outage: Repair the broker, or the queue.
	eventConsumeNotResumed = logging.ErrorEvent("consume_not_resumed",
		"Consuming could not begin again after a lost channel or an outage; it is tried again")
	// each: nothing
	eventConsumeStillUnavailable = logging.DebugEvent("consume_still_unavailable",
		"Consuming could not begin again yet")
	// outage: nothing
	eventConsumeResumed = logging.InfoEvent("consume_resumed", "Consuming has begun again")
	// each: Look for nodes that hang or are cut off.
	eventConsumersVanished = logging.ErrorEvent("consumers_vanished",
		"The broker has no consumer of the queue any more, and said nothing: consuming begins again")
	// each: If the queue was not deleted: lower `MaxHold`, or raise the broker's `consumer_timeout`.
	eventConsumerLost = logging.InfoEvent("consumer_lost",
		"The broker ended a consumer or its channel: what was not settled comes again, and consuming begins again")
	// each: Set `x-delivery-limit` to -1, or let the user write to the default exchange.
	eventReturnRefused = logging.ErrorEvent("return_refused",
		"The queue drops a message that is returned once more, and it could not be published again: it is held")
	// once: Let all messages of a key have the same priority, or none.
	eventPriorityReorders = logging.ErrorEvent("priority_reorders",
		"The queue delivers by priority: messages of a key whose priorities differ come out of their order")
)

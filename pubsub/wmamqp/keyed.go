package wmamqp

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/rabbitmq/amqp091-go"
)

const (
	maxPriority  = "x-max-priority"
	delayedRetry = "x-delayed-retry-type" // of quorum queues, from RabbitMQ 4.3 on
)

// validateKey refuses what has no order.
func (c *SubscriberConfig) validateKey() error {
	if c.Key == nil {
		return nil
	}
	if c.InFlight == 1 {
		return errors.New("wmamqp: SubscriberConfig.Key with InFlight 1: one message at a time is in the order of the queue " +
			"anyway; set InFlight to the number of keys that are handled at the same time, or leave Key out")
	}
	arguments := c.AMQP.Queue.Arguments
	if arguments[amqp091.SingleActiveConsumerArg] != true {
		return fmt.Errorf("wmamqp: SubscriberConfig.Key without %s: competing consumers of a queue have no order; set "+
			"AMQP.Queue.Arguments[%[1]q] to true, on a queue that was declared with it", amqp091.SingleActiveConsumerArg)
	}
	if _, found := c.AMQP.Consume.Arguments["x-priority"]; found {
		return errors.New("wmamqp: SubscriberConfig.Key with AMQP.Consume.Arguments[\"x-priority\"]: a consumer of a higher " +
			"priority becomes active while messages of this one are not settled; leave the priority out")
	}
	if _, found := arguments[maxPriority]; found {
		return fmt.Errorf("wmamqp: SubscriberConfig.Key with %s in AMQP.Queue.Arguments: later messages overtake earlier ones; use "+
			"a queue without it", maxPriority)
	}
	if kind, found := arguments[delayedRetry]; found && kind != "disabled" {
		return fmt.Errorf("wmamqp: SubscriberConfig.Key with %s %s in AMQP.Queue.Arguments: a message that was returned comes "+
			"after later ones of its key; use a queue without it", delayedRetry, text(kind))
	}
	if limit, found := arguments[deliveryLimit]; found && text(limit) != "-1" {
		return fmt.Errorf("wmamqp: SubscriberConfig.Key with %s %s in AMQP.Queue.Arguments: the queue drops a message out of "+
			"its order when it was requeued that often; set it to -1", deliveryLimit, text(limit))
	}
	return nil
}

// checkLimit refuses a queue that has a delivery limit although its arguments have none.
func (c *SubscriberConfig) checkLimit(arguments amqp091.Table, major int) error {
	_, limited := arguments[deliveryLimit]
	if c.Key == nil || limited || major < unlimitedFrom || arguments[amqp091.QueueTypeArg] != amqp091.QueueTypeQuorum {
		return nil
	}
	return fmt.Errorf("wmamqp: SubscriberConfig.Key without %s: from RabbitMQ %d on a quorum queue drops a message that was "+
		"requeued 20 times; set AMQP.Queue.Arguments[%[1]q] to -1", deliveryLimit, unlimitedFrom)
}

// ordered is a topology of the user's, after which the broker is asked whether the queue has the arguments that say
// that it has an order.
type ordered struct{ amqp.TopologyBuilder }

func (o ordered) BuildTopology(c *amqp091.Channel, queue, exchange string, config amqp.Config,
	logger watermill.LoggerAdapter) error {
	if err := o.TopologyBuilder.BuildTopology(c, queue, exchange, config, logger); err != nil {
		return err
	}
	q := config.Queue
	if _, err := c.QueueDeclare(queue, q.Durable, q.AutoDelete, q.Exclusive, false, q.Arguments); err != nil {
		return fmt.Errorf("wmamqp: SubscriberConfig.Key: AMQP.TopologyBuilder has declared queue %q otherwise than AMQP.Queue "+
			"says, so it may have no order: make them alike: %w", queue, err)
	}
	return nil
}

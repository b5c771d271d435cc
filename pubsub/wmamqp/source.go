package wmamqp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/logging"
)

// defaultLimit is how often a quorum queue without x-delivery-limit takes a message back from RabbitMQ 4 on.
const defaultLimit = 20

// source is what is known of a queue that is consumed.
type source struct {
	// limit is how often the queue takes a message back. It drops the message at the next return. -1 is no limit, or a
	// queue that does not count a nack.
	limit int
	// nackIsFree means that the queue counts a closed channel as a delivery, and a nack not.
	nackIsFree bool
	// first and later are the priorities at which a message comes before or after those without one.
	first, later uint8
}

// reorders reports whether the queue delivers a message of this priority before or after others.
func (s *source) reorders(priority uint8) bool {
	return s != nil && (s.first > 0 && priority >= s.first || priority > 0 && priority <= s.later)
}

// sourceOf asks the broker what the queue is. It refuses a stream, to which no message returns. arguments are those
// that the queue is known to have.
func sourceOf(conn *amqp091.Connection, queue string, arguments amqp091.Table) (source, error) {
	v := versionOf(conn.Properties)
	if conn.Properties["product"] != "RabbitMQ" || !v.atLeast(3, 10) { // others have other answers
		return source{limit: -1}, nil
	}
	kind, err := kindOf(conn, queue)
	if err != nil {
		return source{}, err
	}
	if kind == amqp091.QueueTypeStream {
		return source{}, streamRefused(queue, "a message that was delivered and not acked never comes again")
	}
	found := source{limit: -1}
	if kind == amqp091.QueueTypeClassic {
		return found, nil
	}
	if v.atLeast(4, 0) {
		found.first = 5
	}
	if v.atLeast(4, 3) {
		found.nackIsFree, found.later = true, 3
		return found, nil
	}
	limit, limited := arguments[deliveryLimit]
	switch {
	case limited && !strings.HasPrefix(text(limit), "-"):
		found.limit = countOf(limit)
	case !limited && v.atLeast(unlimitedFrom, 0):
		found.limit = defaultLimit
	}
	return found, nil
}

func streamRefused(queue, why string) error {
	return fmt.Errorf("wmamqp: queue %q is a stream (x-queue-type stream): %s: use a quorum or classic queue", queue, why)
}

// kindOf asks for the type of a queue, by consuming it in a way that every queue refuses and says why. A policy cannot
// change the type, and an argument of the declaration is no proof: virtual hosts have defaults, and RabbitMQ can be
// told to take a declaration of another type. The type is empty if the answer was cut, for a long name.
func kindOf(conn *amqp091.Connection, queue string) (string, error) {
	const offset = "x-stream-offset"
	err := onChannel(conn, func(c *amqp091.Channel) error {
		_, err := c.Consume(queue, "", false, false, false, false, amqp091.Table{offset: "next"})
		return err
	})
	var answer *amqp091.Error
	if err == nil {
		return amqp091.QueueTypeStream, nil
	}
	if !errors.As(err, &answer) {
		return "", fmt.Errorf("wmamqp: ask for the type of queue %q: %w", queue, err)
	}
	switch is := answer.Reason; { // the queue's name is in the middle, and can be anything
	case strings.HasPrefix(is, "PRECONDITION_FAILED - consumer prefetch count is not set"):
		return amqp091.QueueTypeStream, nil
	case !strings.HasPrefix(is, "PRECONDITION_FAILED - invalid arg '"+offset+"'"):
		return "", fmt.Errorf("wmamqp: ask for the type of queue %q: %w", queue, err)
	case strings.HasSuffix(is, "of queue type rabbit_classic_queue"):
		return amqp091.QueueTypeClassic, nil
	case strings.HasSuffix(is, "of queue type rabbit_quorum_queue"):
		return amqp091.QueueTypeQuorum, nil
	}
	return "", nil
}

// drops reports whether the queue would drop the message when it is returned.
func (s *source) drops(d *amqp091.Delivery) bool {
	return s != nil && s.limit >= 0 && countIn(d) >= s.limit
}

// returnToQueue returns a message to its queue. One that the queue would drop is published to the end of the queue
// instead, and acked when the broker has confirmed that. It reports false if that failed: then the message is still
// ours.
func (c *consumer) returnToQueue(d *amqp091.Delivery, id string) bool {
	if !c.sub.source.Load().drops(d) {
		_ = d.Nack(false, true)
		return true
	}
	if err := c.publishAgain(d); err != nil {
		eventReturnRefused.Write(c.sub.config.Logger, err,
			logging.Fields{logging.Queue: c.sub.queue, logging.MessageID: id})
		return false
	}
	c.of.given.forget(c.sub.queue, id, d)
	_ = d.Ack(false)
	return true
}

// publishAgainFor bounds how long the broker may take to confirm a message that is published again.
const publishAgainFor = 10 * time.Second

func (c *consumer) publishAgain(d *amqp091.Delivery) error {
	conn, err := c.of.conn.open()
	if err != nil {
		return err
	}
	sent := *d
	sent.Headers = sentHeaders(d.Headers)
	m := Marshaler{} // whatever reads the queue: the message is to be as it was
	p, err := m.write(m.read(&sent))
	if err != nil {
		return err
	}
	p.DeliveryMode, p.Expiration = d.DeliveryMode, d.Expiration
	channel, err := openChannel(conn)
	if err != nil {
		return err
	}
	defer func() { _ = channel.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), publishAgainFor)
	defer cancel()
	err, _ = channel.publish(address{key: c.sub.queue}, &p, ctx.Done(), publishAgainFor)
	return err
}

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

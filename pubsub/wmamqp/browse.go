package wmamqp

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"
)

// Browse calls each with the messages that are ready in the queue of topic when Browse begins, in their order, until
// each returns false. It acks none: they are back at their places when it returns. While it looks, no consumer gets
// those that it looked at. A quorum queue counts one delivery more of each of them, so keep its x-delivery-limit above
// the looks. It is for the dry run of redrive drain. A missing queue is an error that names it.
func (s *Subscriber) Browse(ctx context.Context, topic string, each func(*message.Message) (more bool)) error {
	conn, err := s.conn.open()
	if err != nil {
		return err
	}
	queue := s.config.AMQP.Queue.GenerateName(topic)
	if _, err := sourceOf(conn, queue, nil); err != nil {
		return fmt.Errorf("wmamqp: browse queue %q: %w", queue, err)
	}
	looking, stop := context.WithCancel(ctx)
	defer stop()
	deliveries, ended := make(chan amqp091.Delivery), make(chan error, 1)
	go func() { // the client waits for answers without a limit: the connection ends them
		ended <- onChannel(conn, func(c *amqp091.Channel) error { return browse(looking, c, queue, deliveries) })
	}()
	var unreadable error
	for {
		select {
		case d := <-deliveries:
			if looking.Err() != nil { // it was on its way
				continue
			}
			msg, err := s.config.AMQP.Marshaler.Unmarshal(d)
			if err != nil {
				unreadable = err
				stop()
				continue
			}
			msg.SetContext(context.WithValue(looking, deliveryKey{}, deliveryOf(queue, 0, &d)))
			if !each(msg) {
				stop()
			}
		case err := <-ended:
			if err = errors.Join(err, unreadable, ctx.Err()); err != nil {
				return fmt.Errorf("wmamqp: browse queue %q: %w", queue, err)
			}
			return nil
		case <-ctx.Done():
			return fmt.Errorf("wmamqp: browse queue %q: %w", queue, ctx.Err())
		}
	}
}

// browse gets what is ready in a queue. What it got goes back when the channel is closed.
func browse(ctx context.Context, c *amqp091.Channel, queue string, to chan<- amqp091.Delivery) error {
	q, err := c.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		return err
	}
	for range q.Messages {
		d, found, err := c.Get(queue, false)
		if err != nil || !found {
			return err
		}
		select {
		case to <- d:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

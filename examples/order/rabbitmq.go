package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// rabbitBroker is RabbitMQ, with a queue of its own that has a single active consumer.
type rabbitBroker struct {
	*plan
	conn *amqp091.Connection // only of the process that judges
}

func newRabbit(p *plan) (broker, error) {
	if p.Brokers == nil {
		address, err := services.Lookup("rabbitmq")
		if err != nil {
			return nil, err
		}
		p.Brokers = []string{address}
	}
	return &rabbitBroker{plan: p}, nil
}

func (*rabbitBroker) arguments() amqp091.Table {
	return amqp091.Table{amqp091.SingleActiveConsumerArg: true}
}

func (r *rabbitBroker) create() (err error) {
	if r.conn, err = amqp091.Dial(r.Brokers[0]); err != nil {
		return err
	}
	return r.do(func(c *amqp091.Channel) error {
		_, first := c.QueueDeclare(r.Topic, true, false, false, false, r.arguments())
		_, second := c.QueueDeclare(r.outputs(), true, false, false, false, nil)
		return errors.Join(first, second)
	})
}

func (r *rabbitBroker) do(f func(*amqp091.Channel) error) (err error) {
	if r.conn.IsClosed() { // the broker was restarted
		if r.conn, err = amqp091.Dial(r.Brokers[0]); err != nil {
			return err
		}
	}
	c, err := r.conn.Channel()
	if err != nil {
		return err
	}
	return errors.Join(f(c), c.Close())
}

func (r *rabbitBroker) remove() error {
	return errors.Join(r.do(func(c *amqp091.Channel) (failed error) {
		for _, queue := range []string{r.Topic, r.outputs()} {
			_, err := c.QueueDelete(queue, false, false, false)
			failed = errors.Join(failed, err)
		}
		return failed
	}), r.conn.Close())
}

func (r *rabbitBroker) produce(from, to int) error {
	return r.do(func(c *amqp091.Channel) error {
		if err := c.Confirm(false); err != nil {
			return err
		}
		var last *amqp091.DeferredConfirmation
		for n := from; n < to; n++ {
			var err error
			if last, err = c.PublishWithDeferredConfirm("", r.Topic, true, false,
				amqp091.Publishing{MessageId: r.idOf(n),
					DeliveryMode: amqp091.Persistent, Body: []byte(fmt.Sprint(n))}); err != nil {
				return err
			}
			if n%500 == 499 {
				last.Wait()
			}
		}
		if last != nil && !last.Wait() {
			return errors.New("the broker refused a message")
		}
		return nil
	})
}

func (r *rabbitBroker) consume(config *spillway.Config) (message.Subscriber, message.Publisher, error) {
	config.Queue.Origin = wmamqp.Origin
	from := wmamqp.SubscriberConfig{InFlight: r.Lanes, Key: func(msg *message.Message) string {
		key, _, _ := strings.Cut(msg.UUID, "/")
		return key
	}}
	from.AMQP.Queue.Arguments = r.arguments()
	// a stopped consumer is given up in 6 s
	from.AMQP.Connection.AmqpConfig = &amqp091.Config{Heartbeat: 2 * time.Second}
	subscriber, err := wmamqp.NewSubscriber(r.Brokers[0], from)
	if err != nil {
		return nil, nil, err
	}
	publisher, err := wmamqp.NewPublisher(r.Brokers[0], wmamqp.PublisherConfig{})
	return subscriber, publisher, err
}

func (*rabbitBroker) partition(*message.Message) int { return 0 }

// behind is how many are ready: what consumers have and did not ack, they give back when they end.
func (r *rabbitBroker) behind() (n int, err error) {
	err = r.do(func(c *amqp091.Channel) error {
		q, err := c.QueueDeclarePassive(r.Topic, true, false, false, false, nil)
		n = q.Messages
		return err
	})
	return n, err
}

func (r *rabbitBroker) published(each func(output) error) error {
	return r.do(func(c *amqp091.Channel) error {
		for {
			d, ok, err := c.Get(r.outputs(), true)
			if err != nil || !ok {
				return err
			}
			lane, _ := d.Headers[laneKey].(string)
			id, _ := d.Headers[amqp.DefaultMessageUUIDHeaderKey].(string)
			if err := each(output{id, lane, string(d.Body)}); err != nil {
				return err
			}
		}
	})
}

package wmamqp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"
)

// subscription is what came of one Subscribe: as many consumers of the queue as messages may be in flight.
type subscription struct {
	config    *SubscriberConfig
	queue     string
	out       chan *message.Message
	consumers []*consumer

	ctx  context.Context // ends with that of Subscribe, and with Close
	stop context.CancelFunc
}

func (s *Subscriber) subscribe(ctx context.Context, topic string) (*subscription, error) {
	if err := s.room(topic); err != nil {
		return nil, err
	}
	sub := &subscription{config: &s.config, queue: s.config.AMQP.Queue.GenerateName(topic), out: make(chan *message.Message)}
	sub.ctx, sub.stop = context.WithCancel(ctx)
	for range s.config.InFlight {
		c, err := s.consume(sub, topic)
		if err != nil {
			sub.stop()
			sub.run() // ends what has begun
			return nil, err
		}
		sub.consumers = append(sub.consumers, c)
	}
	return sub, nil
}

// room tells whether the connection has channels for one more subscription, and one to declare its queue: a consumer of
// watermill-amqp that gets none asks again ten times a second, and says nothing but to its log.
func (s *Subscriber) room(topic string) error {
	if s.config.InFlight == 1 {
		return nil
	}
	conn, err := s.conn.open()
	if err != nil {
		return err
	}
	s.mu.Lock()
	others := len(s.stops)
	s.mu.Unlock()
	if most := int(conn.Config.ChannelMax); (others+1)*s.config.InFlight+1 > most {
		return fmt.Errorf("wmamqp: subscribe to %q with SubscriberConfig.InFlight %d: the connection has %d channels, and %d other "+
			"subscriptions take as many each: lower it, or use a subscriber of its own", topic, s.config.InFlight, most, others)
	}
	return nil
}

// consume begins to consume the queue on one more channel.
func (s *Subscriber) consume(sub *subscription, topic string) (*consumer, error) {
	c := &consumer{subscription: sub, receiver: &receiver{Marshaler: s.config.AMQP.Marshaler}}
	var err error
	if c.inner, _, err = s.inner(c.receiver); err != nil {
		return nil, err
	}
	// When our context ends, inner goes on until the message in flight is settled.
	var innerCtx context.Context
	innerCtx, c.release = context.WithCancel(context.WithoutCancel(sub.ctx))
	err = declaring(topic, func() error {
		c.messages, err = c.inner.Subscribe(innerCtx, topic)
		return err
	})
	if err != nil {
		c.release()
		return nil, err
	}
	return c, nil
}

// run passes messages on until the last consumer has ended, and then lets go of the broker.
func (s *subscription) run() {
	s.each((*consumer).run)
	close(s.out)
	s.stop()
	s.each((*consumer).end)
}

func (s *subscription) each(do func(*consumer)) {
	var all sync.WaitGroup
	for _, c := range s.consumers {
		all.Go(func() { do(c) })
	}
	all.Wait()
}

// inner returns a subscriber of watermill-amqp on our connection, and what adapts its declarations.
func (s *Subscriber) inner(r *receiver) (*amqp.Subscriber, *adapting, error) {
	config := s.config.AMQP
	config.Marshaler = r
	var topology *adapting
	if stock, ok := config.TopologyBuilder.(*amqp.DefaultTopologyBuilder); ok {
		topology = &adapting{DefaultTopologyBuilder: stock}
		config.TopologyBuilder = topology
	}
	inner, err := amqp.NewSubscriberWithConnection(config, s.config.Logger, s.conn.ConnectionWrapper)
	if err != nil {
		return nil, nil, fmt.Errorf("wmamqp: %w", err)
	}
	return inner, topology, nil
}

// adapting is watermill-amqp's topology, but that a queue which is there with other arguments is taken as it is: a
// dead-letter queue, for one, is a quorum queue whatever the live one is. The broker answers a declaration it refuses by
// closing the channel, so the other way is for the next call, which follows at once.
type adapting struct {
	*amqp.DefaultTopologyBuilder
	passive atomic.Bool
}

func (a *adapting) BuildTopology(c *amqp091.Channel, queue, exchange string, config amqp.Config, logger watermill.LoggerAdapter) error {
	if !a.passive.Load() {
		err := a.DefaultTopologyBuilder.BuildTopology(c, queue, exchange, config, logger)
		if refused(err, amqp091.PreconditionFailed) {
			a.passive.Store(true)
			return errAgain{err}
		}
		return err
	}
	_, err := c.QueueDeclarePassive(queue, config.Queue.Durable, config.Queue.AutoDelete, config.Queue.Exclusive, false, nil)
	if err != nil {
		if refused(err, amqp091.NotFound) {
			a.passive.Store(false)
			return errAgain{err}
		}
		return fmt.Errorf("wmamqp: queue %q: %w", queue, err)
	}
	if exchange == "" {
		return nil
	}
	if err := a.ExchangeDeclare(c, exchange, config); err != nil {
		return fmt.Errorf("wmamqp: declare exchange %q: %w", exchange, err)
	}
	key := config.QueueBind.GenerateRoutingKey(queue)
	if err := c.QueueBind(queue, key, exchange, config.QueueBind.NoWait, config.QueueBind.Arguments); err != nil {
		return fmt.Errorf("wmamqp: bind queue %q to exchange %q: %w", queue, exchange, err)
	}
	return nil
}

func refused(err error, code int) bool {
	var refusal *amqp091.Error
	return errors.As(err, &refusal) && refusal.Code == code
}

type errAgain struct{ error }

func (e errAgain) Unwrap() error { return e.error }

// declaring repeats what an adapting topology has learned from.
func declaring(topic string, f func() error) error {
	for try := 1; ; try++ {
		err := f()
		if again := (errAgain{}); err == nil {
			return nil
		} else if !errors.As(err, &again) || try == 3 {
			return fmt.Errorf("wmamqp: subscribe to %q: %w", topic, err)
		}
	}
}

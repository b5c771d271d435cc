package wmamqp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"
)

// subscription passes the messages of one of watermill-amqp's subscriptions on, one after the other.
type subscription struct {
	config   *SubscriberConfig
	queue    string
	inner    *amqp.Subscriber
	receiver *receiver
	messages <-chan *message.Message
	release  context.CancelFunc // of the context that inner has
	out      chan *message.Message

	ctx  context.Context // ends with that of Subscribe, and with Close
	stop context.CancelFunc

	channel *amqp091.Channel // the one that lost tells of
	lost    <-chan *amqp091.Error
	nacks   int // in a row
}

// receiver is the marshaler that remembers the delivery it read last. Watermill-amqp reads a delivery, hands the message
// over, and waits until it is settled; so when the message has come, this is its delivery.
type receiver struct {
	amqp.Marshaler
	delivery amqp091.Delivery
}

// Unmarshal keeps the broker's count out of the message: it is the Delivery's, and with it every redelivery would be
// another message to who compares them, as the dead-letter store does.
func (r *receiver) Unmarshal(d amqp091.Delivery) (*message.Message, error) {
	r.delivery = d
	if count, found := d.Headers[deliveryCount]; found {
		if _, isText := count.(string); !isText {
			d.Headers = maps.Clone(d.Headers)
			delete(d.Headers, deliveryCount)
		}
	}
	return r.Marshaler.Unmarshal(d)
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

func (s *Subscriber) subscribe(ctx context.Context, topic string) (*subscription, error) {
	sub := &subscription{
		config: &s.config, queue: s.config.AMQP.Queue.GenerateName(topic),
		receiver: &receiver{Marshaler: s.config.AMQP.Marshaler}, out: make(chan *message.Message),
	}
	var err error
	if sub.inner, _, err = s.inner(sub.receiver); err != nil {
		return nil, err
	}
	// When our context ends, inner goes on until the message in flight is settled.
	var innerCtx context.Context
	innerCtx, sub.release = context.WithCancel(context.WithoutCancel(ctx))
	err = declaring(topic, func() error {
		sub.messages, err = sub.inner.Subscribe(innerCtx, topic)
		return err
	})
	if err != nil {
		sub.release()
		return nil, err
	}
	sub.ctx, sub.stop = context.WithCancel(ctx)
	return sub, nil
}

func (s *subscription) run() {
	defer close(s.out)
	for s.ctx.Err() == nil {
		select {
		case <-s.ctx.Done():
		case msg, open := <-s.messages:
			if !open { // a connection that was given to us has been closed
				return
			}
			s.pass(msg, s.receiver.delivery)
		}
	}
}

// end lets go of the broker. Watermill-amqp's Close does not return while it is not connected, unless its context ends;
// and with that alone it would take one more message first.
func (s *subscription) end() {
	s.stop()
	closed := make(chan struct{})
	go func() { _ = s.inner.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(200 * time.Millisecond):
	}
	s.release()
	<-closed
}

// pass hands a message to the router and its settlement to the broker.
func (s *subscription) pass(in *message.Message, d amqp091.Delivery) {
	lost := s.watch(d)
	ctx, cancel := context.WithCancel(withDelivery(s.ctx, s.queue, &d))
	defer cancel()
	msg := message.NewMessageWithContext(ctx, in.UUID, in.Payload)
	msg.Metadata = in.Metadata

	select {
	case s.out <- msg:
	case <-lost:
		s.settle(in, false)
		return
	case <-s.ctx.Done():
		s.settle(in, false)
		return
	}
	select {
	case <-msg.Acked():
		s.nacks = 0
		s.settle(in, true)
	case <-msg.Nacked():
		s.pause(lost)
		s.settle(in, false)
	case <-lost:
		cancel()
		s.settle(in, s.grace(msg))
	case <-s.ctx.Done():
		s.settle(in, s.grace(msg))
	}
}

// watch tells when the delivery's channel is lost, with its connection or alone.
func (s *subscription) watch(d amqp091.Delivery) <-chan *amqp091.Error {
	channel, ok := d.Acknowledger.(*amqp091.Channel)
	if !ok {
		return nil
	}
	if channel != s.channel {
		s.channel, s.lost = channel, channel.NotifyClose(make(chan *amqp091.Error, 1))
	}
	return s.lost
}

// grace waits for the handler of a message that went away, and tells whether it acked.
func (s *subscription) grace(msg *message.Message) bool {
	timer := time.NewTimer(s.config.SettleGrace)
	defer timer.Stop()
	select {
	case <-msg.Acked():
		return true
	case <-msg.Nacked():
	case <-timer.C:
		s.config.Logger.Info("A handler outlives its message, which is given back: it does not obey its context",
			watermill.LogFields{"message_uuid": msg.UUID, "queue": s.queue, "grace": s.config.SettleGrace})
	}
	return false
}

// pause keeps a message that is to be given back for a while.
func (s *subscription) pause(lost <-chan *amqp091.Error) {
	wait := s.config.MaxNackWait
	if s.nacks < 30 {
		wait = min(wait, s.config.NackWait<<s.nacks)
	}
	s.nacks++
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-lost:
	case <-s.ctx.Done():
	}
}

// settle tells watermill-amqp, and waits until it has told the broker: were it closed before, it would give back a
// message that was acked. On a lost channel it fails to tell, and so finds out.
func (s *subscription) settle(in *message.Message, acked bool) {
	if acked {
		in.Ack()
	} else {
		in.Nack()
	}
	told := in.Context().Done()
	select {
	case <-told:
		return
	case <-s.ctx.Done():
	}
	select {
	case <-told:
	case <-time.After(closeWait):
	}
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

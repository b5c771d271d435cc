package wmamqp

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/intake"
	"github.com/watermill-spillway/spillway/internal/logging"
)

// consumer passes the messages of one of watermill-amqp's subscriptions on, one after the other.
type consumer struct {
	*subscription
	of    *Subscriber
	topic string

	prefetch  int          // 1 while something that the handler needs is away
	valve     intake.Valve // of a consumer that fetches more
	returnAll bool         // the latest message is to go back with all that were fetched
	acks      int          // in a row

	inner    *amqp.Subscriber
	receiver *receiver
	messages <-chan *message.Message
	release  context.CancelFunc // of the context that inner has

	channel *amqp091.Channel // the one whose loss is watched
	lost    <-chan *amqp091.Error
	nacks   int // in a row

	full sync.Once // see takesNoMore
}

// receiver is the marshaler that remembers the delivery it read last. Watermill-amqp reads a delivery, hands the message
// over, and waits until it is settled; so when the message has come, this is its delivery.
type receiver struct {
	amqp.Marshaler
	delivery amqp091.Delivery
}

// Unmarshal keeps the broker's count out of the message: it is the Delivery's, and with it every redelivery would be
// another message to a comparison, such as that of the dead-letter store.
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

// begin begins to consume.
func (c *consumer) begin() error {
	config := c.of.config
	c.receiver = &receiver{Marshaler: config.AMQP.Marshaler}
	var err error
	if c.inner, _, err = c.of.inner(c.receiver, c.queue, c.prefetch, config.Logger); err != nil {
		return err
	}
	// When our context ends, inner goes on until the message in flight is settled.
	var innerCtx context.Context
	innerCtx, c.release = context.WithCancel(context.WithoutCancel(c.ctx))
	err = declaring(c.topic, func() error {
		c.messages, err = c.inner.Subscribe(innerCtx, c.topic)
		return err
	})
	if err != nil {
		c.release()
	}
	return err
}

// run passes messages on until the subscription ends.
func (c *consumer) run() {
	for c.ctx.Err() == nil {
		select {
		case <-c.ctx.Done():
		case msg, open := <-c.messages:
			if !open { // a connection that was given to us has been closed
				return
			}
			c.pass(msg, c.receiver.delivery)
			c.adapt()
		}
	}
}

// takesNoMore says that the broker has no message for this consumer any more: it has one that it will give back, or none.
func (c *consumer) takesNoMore() { c.full.Do(c.taking.Done) }

// end lets go of the broker. What is not acked it has back when the channel is closed; to nack it would be to be given it
// again, or what stands behind it. Watermill-amqp's Close does not return while it is not connected, unless its context
// ends; and with that alone it would take one more message first.
func (c *consumer) end() {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if c.channel != nil {
			_ = c.channel.Close()
		}
		_ = c.inner.Close()
	}()
	select {
	case <-closed:
	case <-time.After(200 * time.Millisecond):
	}
	c.release()
	<-closed
}

// pass hands a message to the router and its settlement to the broker. What is not acked when the subscription ends stays
// with the channel.
func (c *consumer) pass(in *message.Message, d amqp091.Delivery) {
	lost := c.watch(d)
	ctx, cancel := context.WithCancel(withDelivery(c.ctx, c.queue, c.of.given.times(c.queue, in.UUID, &d), &d))
	defer cancel()
	if c.prefetch > 1 {
		ctx = intake.With(ctx, &c.valve)
	}
	msg := message.NewMessageWithContext(ctx, in.UUID, in.Payload)
	msg.Metadata = in.Metadata
	began, shuts := time.Now(), c.valve.Shuts()

	select {
	case c.out <- msg:
	case <-lost:
		c.settle(in, false)
		return
	case <-c.ctx.Done():
		c.keep()
		return
	}
	select {
	case <-msg.Acked():
		c.nacks = 0
		c.acks++
		c.of.given.forget(c.queue, in.UUID, &d)
		c.settle(in, true)
	case <-msg.Nacked():
		c.of.given.add(c.queue, in.UUID, &d)
		c.acks = 0
		waited := time.Since(began) > c.config.MaxHold/2 // because something that its handler needs is away
		if c.returnAll = c.prefetch > 1 && (waited || c.valve.Shuts() != shuts); c.returnAll {
			return
		}
		if !waited {
			c.pause(lost)
		}
		if c.ctx.Err() != nil {
			c.keep()
			return
		}
		c.settle(in, false)
	case <-lost:
		cancel()
		acked := c.grace(msg)
		if !acked {
			c.of.given.add(c.queue, in.UUID, &d)
		}
		c.settle(in, acked)
	case <-c.ctx.Done():
		c.takesNoMore()
		if c.grace(msg) {
			c.settle(in, true)
			return
		}
		c.keep()
	}
}

// keep holds the message until its channel would not deliver it again.
func (c *consumer) keep() {
	c.takesNoMore()
	c.noneTakes()
}

// watch notices when the delivery's channel is lost, with its connection or alone.
func (c *consumer) watch(d amqp091.Delivery) <-chan *amqp091.Error {
	channel, ok := d.Acknowledger.(*amqp091.Channel)
	if !ok {
		return nil
	}
	if channel != c.channel {
		c.channel, c.lost = channel, channel.NotifyClose(make(chan *amqp091.Error, 1))
	}
	return c.lost
}

// grace waits for the handler of a message whose context ended, and reports whether it acked.
func (c *consumer) grace(msg *message.Message) bool {
	timer := time.NewTimer(c.config.SettleGrace)
	defer timer.Stop()
	select {
	case <-msg.Acked():
		return true
	case <-msg.Nacked():
	case <-timer.C:
		logging.HandlerIgnoresContext.Write(c.config.Logger, nil, logging.Fields{logging.MessageID: msg.UUID, logging.Queue: c.queue, "grace": c.config.SettleGrace})
	}
	return false
}

// pause keeps a message that is to be given back for a while.
func (c *consumer) pause(lost <-chan *amqp091.Error) {
	wait := c.config.MaxNackBackoff
	if c.nacks < 30 {
		wait = min(wait, c.config.NackBackoff<<c.nacks)
	}
	c.nacks++
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-lost:
	case <-c.ctx.Done():
	}
}

// settle tells watermill-amqp, and waits until it has told the broker: were it closed before, it would give back a
// message that was acked. On a lost channel it fails to tell, and so finds out.
func (c *consumer) settle(in *message.Message, acked bool) {
	if acked {
		in.Ack()
	} else {
		in.Nack()
	}
	told := in.Context().Done()
	select {
	case <-told:
		return
	case <-c.ctx.Done():
	}
	timer := time.NewTimer(forceWait)
	defer timer.Stop()
	select {
	case <-told:
	case <-timer.C:
	}
}

package wmamqp

import (
	"context"
	"crypto/rand"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/hold/gate"
	"github.com/watermill-spillway/spillway/internal/timing/wait"
)

// consumer passes the messages of a queue on, one handler after the other. While a failed message is placed elsewhere,
// it passes the next one on, and the failed one stays unacked.
type consumer struct {
	sub   *subscription
	of    *Subscriber
	topic string

	prefetch  int        // 1 while something that the handler needs is away
	valve     gate.Valve // of a consumer that fetches more
	returnAll bool       // the latest message is to go back with all that were fetched
	acks      int        // in a row
	nacks     int        // in a row
	failing   bool       // the latest attempt to begin again failed

	host       string // virtual
	tag        string
	channel    *amqp091.Channel
	watched    atomic.Pointer[amqp091.Channel] // the same, for watch
	deliveries <-chan amqp091.Delivery
	lost       <-chan *amqp091.Error // closed when the channel is lost, with its connection or alone
	placements

	full sync.Once // see takesNoMore
	none sync.Once // see getsNone
}

// begin declares the queue and begins to consume it, on a channel of its own.
func (c *consumer) begin() error {
	inner, _, err := c.of.inner(c.sub.queue, c.prefetch, c.sub.config.Logger)
	if err != nil {
		return err
	}
	defer func() { _ = inner.Close() }()
	if err := declaring(c.topic, func() error { return inner.SubscribeInitialize(c.topic) }); err != nil {
		return err
	}
	conn, err := c.of.conn.open()
	if err != nil {
		return err
	}
	channel, err := conn.Channel()
	if err != nil {
		return err
	}
	lost := channel.NotifyClose(make(chan *amqp091.Error, 1))
	consume := c.sub.config.AMQP.Consume
	if err = channel.Qos(c.prefetch, consume.Qos.PrefetchSize, consume.Qos.Global); err == nil {
		c.tag = consume.Consumer
		if c.tag == "" {
			c.tag = "spillway-" + rand.Text()
		}
		c.deliveries, err = channel.Consume(c.sub.queue, c.tag, false, consume.Exclusive, consume.NoLocal,
			consume.NoWait,
			consume.Arguments)
	}
	if err != nil {
		_ = channel.Close()
		return err
	}
	c.channel, c.lost, c.host = channel, lost, conn.Config.Vhost
	c.watched.Store(channel)
	c.resumed()
	c.placements.begin(c)
	return nil
}

// run passes messages on until the subscription ends.
func (c *consumer) run() {
	for c.sub.ctx.Err() == nil {
		d, polled, ok := c.next()
		switch {
		case ok:
			c.pass(&d, polled)
			c.adapt()
		case c.sub.ctx.Err() == nil && !c.beginAgain():
			return
		}
	}
	c.getsNone()
}

// getsNone ends the consumer at the broker, which keeps what is not acked until the channel is closed. Otherwise the
// consumer could get one more message, and the queue would count it: for one that is acked in the grace, or one that
// another consumer requeues.
func (c *consumer) getsNone() { c.none.Do(func() { _ = c.channel.Cancel(c.tag, true) }) }

// beginAgain consumes again when the channel was lost, or the broker cancelled the consumer, as when its queue is
// deleted. It reports false when the subscription has ended, or a connection that was given to us was closed.
func (c *consumer) beginAgain() bool {
	c.placed.Wait() // their contexts end with the channel, so for settleGrace at most
	c.end()
	for wait.For(c.sub.ctx, 100*time.Millisecond) {
		if c.of.conn.Closed() {
			return false
		}
		if _, err := c.of.conn.open(); err != nil { // dialled again elsewhere
			continue
		}
		err := c.begin()
		if err == nil {
			return true
		}
		if c.sub.ctx.Err() == nil {
			c.notResumed(err)
		}
		if !wait.For(c.sub.ctx, beginAgain) {
			break
		}
	}
	return false
}

// takesNoMore says that the broker has no message for this consumer any more: it has one that it will requeue, or
// none.
func (c *consumer) takesNoMore() { c.full.Do(c.sub.taking.Done) }

// end lets go of the broker. What is not acked it has back when the channel is closed; to nack it would be to be given
// it again, or what stands behind it.
func (c *consumer) end() { _ = c.channel.Close() }

// unmarshal makes a message of what the broker sent. It keeps the broker's count out of the message: it is the
// Delivery's, and with it every redelivery would be another message to a comparison, such as that of the dead-letter
// store.
func unmarshal(marshaler amqp.Marshaler, d amqp091.Delivery) (*message.Message, error) {
	if count, found := d.Headers[deliveryCount]; found {
		if _, isText := count.(string); !isText {
			d.Headers = maps.Clone(d.Headers)
			delete(d.Headers, deliveryCount)
		}
	}
	return marshaler.Unmarshal(d)
}

// pass hands a message to the router and its settlement to the broker. What is not acked when the subscription ends
// stays with the channel.
func (c *consumer) pass(broker *amqp091.Delivery, polled bool) {
	msg, err := unmarshal(c.sub.config.AMQP.Marshaler, *broker)
	if err != nil { // Marshaler reads everything
		c.pause()
		_ = broker.Nack(false, true)
		return
	}
	d := &delivery{of: c, broker: broker, polled: polled, size: len(broker.Body), began: time.Now(),
		shuts: c.valve.Shuts()}
	ctx, cancel := context.WithCancel(c.sub.drain.Work)
	d.cancel = cancel
	d.Context, d.info = ctx, deliveryOf(c.sub.queue, c.of.given.times(c.sub.queue, msg.UUID, broker), broker)
	ctx = d
	if c.prefetch > 1 {
		ctx = gate.With(ctx, &c.valve)
	}
	msg.SetContext(ctx)
	d.msg, d.id = msg, msg.UUID
	c.takes(d)

	select {
	case c.sub.out <- msg:
	case <-c.lost:
		cancel()
		return
	case <-c.sub.ctx.Done():
		cancel()
		c.keep()
		return
	}
	for ends := c.sub.ctx.Done(); ; {
		select {
		case <-ends: // the handler may finish, and the broker sends nothing more meanwhile
			ends = nil
			c.getsNone()
			c.takesNoMore()
		case <-c.wake:
			if c.isPlacing(d) {
				return
			}
		case <-msg.Acked():
			if c.leaves(d) {
				c.acked(d)
			}
			return
		case <-msg.Nacked():
			if c.leaves(d) {
				cancel()
				c.nacked(d)
			}
			return
		case <-c.lost:
			if c.leaves(d) {
				c.outlived(d)
			}
			return
		case <-c.sub.drain.Work.Done():
			if c.leaves(d) {
				c.getsNone()
				c.takesNoMore()
				if !c.outlived(d) {
					c.keep()
				}
			}
			return
		}
	}
}

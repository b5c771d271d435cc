package wmamqp

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/hold/gate"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
)

// consumer passes the messages of a queue on, one handler after the other. While a failed message is placed elsewhere,
// it passes the next one on, and the failed one stays unacked.
type consumer struct {
	sub   *subscription
	of    *Subscriber
	topic string
	asks  bool // the broker what the queue is: one of a subscription's does

	prefetch  int        // 1 while something that the handler needs is unavailable
	valve     gate.Valve // of a consumer that fetches more
	returnAll bool       // the latest message is to go back with all that were fetched
	acks      int        // in a row
	nacks     int        // in a row

	host       string // virtual
	tag        string
	channel    *amqp091.Channel
	watched    atomic.Pointer[amqp091.Channel] // the same, for watch
	deliveries <-chan amqp091.Delivery
	lost       <-chan struct{} // closed when the channel is lost, alone or with its connection, or the broker cancels
	cancelled  <-chan struct{} // closed when the consumer was cancelled; nil until cancel is called
	again      []*delivery     // nacked, and neither returned nor settled: they are delivered again from here
	placements

	full sync.Once // see takesNoMore
}

// begin declares the queue and begins to consume it, on a channel of its own.
func (c *consumer) begin() error {
	arguments, err := c.of.declare(c.topic, c.sub.queue)
	if err != nil {
		return err
	}
	conn, err := c.of.conn.open()
	if err != nil {
		return err
	}
	if c.asks {
		found, err := sourceOf(conn, c.sub.queue, arguments)
		if err != nil {
			return err
		}
		c.sub.source.Store(&found)
	}
	channel, err := conn.Channel()
	if err != nil {
		return err
	}
	lost := c.watchChannel(conn, channel)
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
	c.channel, c.lost, c.host, c.cancelled, c.again = channel, lost, conn.Config.Vhost, nil, nil
	c.watched.Store(channel)
	c.sub.lost.Store(false)
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

// watchChannel returns what is closed when the channel can settle nothing any more: it is lost, or the broker cancelled
// its consumer. RabbitMQ cancels when the queue is deleted, and from 4.3 on when a message of a quorum queue is not
// settled within the consumer_timeout. The channel stays open then, and others get the message.
func (c *consumer) watchChannel(conn *amqp091.Connection, channel *amqp091.Channel) <-chan struct{} {
	closes, cancels := channel.NotifyClose(make(chan *amqp091.Error, 1)), channel.NotifyCancel(make(chan string, 1))
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		var reason error
		select {
		case err := <-closes:
			if err != nil {
				reason = err
			}
		case _, open := <-cancels:
			if open {
				reason = errCancelled
			} else if err := <-closes; err != nil {
				reason = err
			}
		}
		// the log has a line of a lost connection, and one for all consumers that go at once
		if reason != nil && !conn.IsClosed() && c.sub.lost.CompareAndSwap(false, true) {
			eventConsumerLost.Write(c.sub.config.Logger, reason, logging.Fields{logging.Queue: c.sub.queue})
		}
	}()
	return lost
}

// cancel ends the consumer at the broker, which keeps what is not acked until the channel is closed. It does not wait.
func (c *consumer) cancel() <-chan struct{} {
	if c.cancelled == nil {
		done, channel, tag := make(chan struct{}), c.channel, c.tag
		go func() { defer close(done); _ = channel.Cancel(tag, false) }()
		c.cancelled = done
	}
	return c.cancelled
}

// getsNone cancels the consumer at the end of the subscription. Otherwise it could get one more message, and the queue
// would count it: for one that is acked in the grace, or one that another consumer requeues.
func (c *consumer) getsNone() {
	cancelled := c.cancel()
	go func() { <-cancelled; c.takesNoMore() }()
}

// beginAgain consumes again when the channel was lost, or the broker cancelled the consumer, as when its queue is
// deleted. It reports false when the subscription has ended.
func (c *consumer) beginAgain() bool {
	c.placed.Wait() // their contexts end with the channel, so for settleGrace at most
	c.end()
	for timing.Wait(c.sub.ctx, 100*time.Millisecond) {
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
		if !timing.Wait(c.sub.ctx, beginAgain) {
			break
		}
	}
	return false
}

// takesNoMore says that the broker has no message for this consumer any more: it has one that it will requeue, or
// none.
func (c *consumer) takesNoMore() { c.full.Do(c.sub.taking.Done) }

// end lets go of the broker. What is not acked it has back when the channel is closed, in its place. Where a closed
// channel counts and a nack does not, it is nacked before, so that a deployment is no crash. The consumer is cancelled
// then: it would be given the same again, or what stands behind.
func (c *consumer) end() {
	source := c.sub.source.Load()
	switch {
	case source == nil || c.channel.IsClosed():
	case source.limit >= 0:
		<-c.cancel()
		for d := range c.deliveries { // fetched, and no handler had it
			c.keeps(&d)
		}
		for _, d := range append(c.back, c.again...) {
			c.keeps(d.broker)
		}
		for _, d := range c.kept {
			if source.drops(d) {
				c.returnToQueue(d, d.MessageId)
			}
		}
	case source.nackIsFree:
		<-c.cancel()
		_ = c.channel.Nack(0, true, true) // all that are open
	}
	if c.cancelled != nil { // on a channel that is closed it would cost the connection
		<-c.cancelled
	}
	_ = c.channel.Close()
}

// pass hands a message to the router and its settlement to the broker. What is not acked when the subscription ends
// stays with the channel.
func (c *consumer) pass(broker *amqp091.Delivery, polled bool) {
	msg, err := c.sub.config.AMQP.Marshaler.Unmarshal(*broker)
	if err != nil { // Marshaler reads everything
		c.pause()
		c.returnToQueue(broker, broker.MessageId)
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
		c.keeps(broker)
		c.keep()
		return
	}
	for ends := c.sub.ctx.Done(); ; {
		select {
		case <-ends: // the handler may finish, and the broker sends nothing more meanwhile
			ends = nil
			c.getsNone()
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
				if !c.outlived(d) {
					c.keep()
				}
			}
			return
		}
	}
}

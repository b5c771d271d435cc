package wmamqp

import (
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
)

// acked acks a message that was handled.
func (c *consumer) acked(d *delivery) {
	d.cancel()
	c.nacks = 0
	c.acks++
	c.of.given.forget(c.sub.queue, d.id, d.broker)
	_ = d.broker.Ack(false)
}

// nacked gives a message back after a while, or with all others.
func (c *consumer) nacked(d *delivery) {
	c.of.given.add(c.sub.queue, d.id, d.broker)
	c.acks = 0
	waited := c.waited(d)
	if c.returnAll = c.returnsAll(d, waited); c.returnAll {
		c.keeps(d.broker)
		return
	}
	if !waited {
		c.pause()
	}
	if c.sub.ctx.Err() != nil {
		c.keeps(d.broker)
		c.keep()
		return
	}
	if !c.returnToQueue(d.broker, d.id) {
		c.again = append(c.again, d)
	}
}

// keeps notes a message that is to be returned when the channel ends. Any goroutine may call it.
func (c *consumer) keeps(d *amqp091.Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = append(c.kept, d)
}

// waited reports whether a message was held because something that its handler needs is unavailable.
func (c *consumer) waited(d *delivery) bool { return time.Since(d.began) > c.sub.config.MaxHold/2 }

// returnsAll reports whether all that was fetched goes back with d, because something that its handler needs is
// unavailable.
func (c *consumer) returnsAll(d *delivery, waited bool) bool {
	return c.prefetch > 1 && (waited || c.valve.Shuts() != d.shuts)
}

// outlived settles a message whose channel or subscription has ended, and reports whether its handler acked in the
// grace.
func (c *consumer) outlived(d *delivery) bool {
	d.cancel()
	acked := c.grace(d)
	if acked {
		_ = d.broker.Ack(false)
	} else {
		c.of.given.add(c.sub.queue, d.id, d.broker)
		c.keeps(d.broker)
	}
	return acked
}

// keep holds the message until its channel would not deliver it again.
func (c *consumer) keep() {
	c.takesNoMore()
	c.sub.noneTakes()
}

// grace waits for the handler of a message whose context ended, and reports whether it acked.
func (c *consumer) grace(d *delivery) bool {
	timer := time.NewTimer(c.sub.config.settleGrace)
	defer timer.Stop()
	select {
	case <-d.msg.Acked():
		return true
	case <-d.msg.Nacked():
	case <-timer.C:
		select { // of two channels that are ready, select takes any
		case <-d.msg.Acked():
			return true
		default:
		}
		eventHandlerIgnoresContext.Write(c.sub.config.Logger, nil,
			logging.Fields{logging.MessageID: d.id, logging.Queue: c.sub.queue, "grace": c.sub.config.settleGrace})
	}
	return false
}

// backoff is the wait after a nack before which there were some.
func (c *SubscriberConfig) backoff(nacks int) time.Duration {
	times := min(nacks, 62)
	if c.nackBackoff <= c.maxNackBackoff>>times { // a shift of the first alone can overflow
		return c.nackBackoff << times
	}
	return c.maxNackBackoff
}

// pause is the wait before messages are requeued.
func (c *consumer) pause() {
	wait := c.sub.config.backoff(c.nacks)
	c.nacks++
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.lost:
	case <-c.sub.ctx.Done():
	}
}

// adapt fetches no more than one message while the handler's downstream is unavailable. What was fetched before goes
// back to the broker, for other instances: it would wait here until the broker closes the channel. When as many
// messages in a row were acked as are fetched by default, as many are fetched again.
func (c *consumer) adapt() {
	whole := c.sub.config.AMQP.Consume.Qos.PrefetchCount
	switch {
	case c.sub.ctx.Err() != nil:
	case c.returnAll || c.valve.IsShut():
		c.change(1)
	case c.prefetch < whole && c.acks >= whole:
		c.change(whole)
	}
}

// change requeues all that was fetched, and consumes with another prefetch when the valve is open.
func (c *consumer) change(prefetch int) {
	c.prefetch, c.acks, c.nacks, c.returnAll = prefetch, 0, 0, false
	c.placed.Wait() // what is being placed would come again
	c.end()
	for c.valve.Wait(c.sub.ctx) {
		err := c.begin()
		if err == nil {
			return
		}
		c.notResumed(err)
		if !timing.Wait(c.sub.ctx, beginAgain) {
			return
		}
	}
}

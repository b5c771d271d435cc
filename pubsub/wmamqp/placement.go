package wmamqp

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/hold/placing"
)

// delivery is a message on its way through the router, and the context of the message.
type delivery struct {
	context.Context
	of     *consumer
	broker *amqp091.Delivery
	info   info
	msg    *message.Message
	id     string // of msg, which its handler may change even after it is settled
	cancel context.CancelFunc
	polled bool // asked for beside the consumer, and no part of its prefetch
	size   int
	began  time.Time
	shuts  uint64      // of the valve, before
	first  atomic.Bool // it is placed before the next message is delivered
}

// Value answers for the adapter's own keys.
func (d *delivery) Value(key any) any {
	switch key.(type) {
	case deliveryKey:
		return d.info
	case placing.Key:
		if d.of.sub.config.MaxPlacing > 0 {
			return d
		}
	}
	return d.Context.Value(key)
}

// Placing lets the consumer go on. The message stays unacked until the router acks it: then it is placed.
func (d *delivery) Placing(_ context.Context, msg *message.Message) {
	if d.first.Load() {
		time.AfterFunc(placing.FirstFor, func() { d.of.place(d, msg) })
		return
	}
	d.of.place(d, msg)
}

// Aside reports whether nothing waits for the message to be placed.
func (d *delivery) Aside() bool { return d.of.isPlacing(d) }

// PlaceFirst lets the next message wait until this one is acked, for placing.FirstFor at most.
func (d *delivery) PlaceFirst() { d.first.Store(true) }

// placements are the messages of a consumer that are placed while it goes on. Only the consumer's own goroutine calls
// its methods, except where they say otherwise.
type placements struct {
	placed sync.WaitGroup
	wake   chan struct{} // has an item if a message is being placed, or has been settled since

	// exchange is held while a message is asked for, and while a place of the prefetch is given back: or the message
	// for which one asks could overtake the one that the broker sends for the place.
	exchange sync.Mutex

	mu      sync.Mutex
	current *delivery           // whose handler runs
	n       int                 // that are being placed
	size    int                 // of these, in bytes
	taken   int                 // places of the prefetch that these take
	back    []*delivery         // nacked while they were placed
	kept    []*amqp091.Delivery // not settled when the subscription ended, or to go back with all others
	confirm int                 // acked since the consumer asked
	noPoll  bool                // the broker refused to be asked
}

// begin begins on a new channel. No message is being placed.
func (p *placements) begin(c *consumer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wake == nil {
		p.wake = make(chan struct{}, 1)
		// a quorum queue would refuse, at the cost of the channel
		p.noPoll = c.sub.config.AMQP.Queue.Arguments[amqp091.SingleActiveConsumerArg] == true
	}
	p.back, p.kept, p.taken = nil, nil, 0 // it went back with the channel before
}

// takes notes whose handler runs.
func (p *placements) takes(d *delivery) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = d
}

// place ends the turn of d's handler. The handler's goroutine calls it.
func (c *consumer) place(d *delivery, msg *message.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != d || d.msg != msg {
		return
	}
	c.current = nil
	c.n, c.size = c.n+1, c.size+d.size
	if !d.polled {
		c.taken++
	}
	c.placed.Go(func() { c.await(d) })
	c.ring()
}

// ring wakes the consumer. Any goroutine may call it.
func (p *placements) ring() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// leaves ends the turn of d's handler, and reports whether it did not end before.
func (p *placements) leaves(d *delivery) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != d {
		return false
	}
	p.current = nil
	return true
}

func (p *placements) isPlacing(d *delivery) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current != d
}

// await waits until a message that is being placed is settled, or cannot be any more.
func (c *consumer) await(d *delivery) {
	acked, nacked := false, false
	select {
	case <-d.msg.Acked():
		acked = true
		c.of.given.forget(c.sub.queue, d.id, d.broker)
		c.exchange.Lock()
		_ = d.broker.Ack(false)
		defer c.exchange.Unlock()
	case <-d.msg.Nacked():
		nacked = true
		c.of.given.add(c.sub.queue, d.id, d.broker)
	case <-c.lost:
		acked = c.outlived(d)
	case <-c.sub.drain.Work.Done():
		acked = c.outlived(d)
	}
	d.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if acked {
		c.confirm++
	}
	if nacked {
		c.back = append(c.back, d)
	}
	c.n, c.size = c.n-1, c.size-d.size
	if !d.polled && !nacked { // what comes back takes its place until it is requeued
		c.taken--
	}
	c.ring()
}

// The wait between two questions for a message, while all that the broker may send by itself is being placed.
const (
	pollFirst = time.Millisecond
	pollLast  = 100 * time.Millisecond
)

// next returns the next message, and whether it was asked for. It reports false when the channel or the subscription
// has ended.
func (c *consumer) next() (d amqp091.Delivery, polled, ok bool) {
	pause := pollFirst
	for c.sub.ctx.Err() == nil {
		c.requeue()
		if len(c.again) > 0 {
			d := c.again[0]
			c.again = c.again[1:]
			return *d.broker, d.polled, true
		}
		deliveries := c.deliveries
		var poll <-chan time.Time
		room, asks := c.room()
		switch {
		case !room:
			deliveries = nil
		case asks:
			if d, ok := c.ask(); ok {
				return d, true, true
			}
			poll, pause = time.After(pause), min(2*pause, pollLast)
		}
		select {
		case <-c.sub.ctx.Done():
		case <-c.lost:
			return d, false, false
		case <-c.wake:
		case <-poll:
		case d, ok := <-deliveries:
			return d, false, ok
		}
	}
	return d, false, false
}

// room reports whether one more message may be taken, and whether the broker must be asked for it, because those that
// are being placed take all places of the prefetch.
func (c *consumer) room() (room, asks bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.confirm > 0 {
		c.nacks, c.acks, c.confirm = 0, c.acks+c.confirm, 0
	}
	room = c.n == 0 || c.n < c.sub.config.MaxPlacing && c.size < c.sub.config.maxPlacingBytes
	return room, c.taken >= c.prefetch && !c.noPoll
}

// ask asks the broker for a message, if it would still send none by itself.
func (c *consumer) ask() (amqp091.Delivery, bool) {
	c.exchange.Lock()
	defer c.exchange.Unlock()
	if _, asks := c.room(); !asks {
		return amqp091.Delivery{}, false
	}
	d, ok, err := c.channel.Get(c.sub.queue, false)
	if err != nil {
		c.refuses(err)
	}
	return d, ok && err == nil
}

// refuses notes that the broker does not answer for this queue, as for one with a single active consumer.
func (c *consumer) refuses(err error) {
	for _, code := range []int{amqp091.AccessRefused, amqp091.ResourceLocked, amqp091.NotAllowed,
		amqp091.NotImplemented} {
		if refused(err, code) {
			c.mu.Lock()
			c.noPoll = true
			c.mu.Unlock()
		}
	}
}

// requeue returns what was nacked while it was placed, after one wait for all.
func (c *consumer) requeue() {
	c.mu.Lock()
	back := c.back
	c.mu.Unlock()
	if len(back) == 0 {
		return
	}
	c.acks = 0
	waited := false
	for _, d := range back {
		waited = waited || c.waited(d)
		c.returnAll = c.returnAll || c.returnsAll(d, waited)
	}
	if c.returnAll {
		c.adapt()
		return
	}
	if !waited {
		c.pause()
	}
	if c.sub.ctx.Err() != nil {
		c.keep()
		return
	}
	c.mu.Lock()
	back, c.back = c.back, nil
	for _, d := range back {
		if !d.polled {
			c.taken--
		}
	}
	c.mu.Unlock()
	for _, d := range back {
		if !c.returnToQueue(d.broker, d.id) {
			c.again = append(c.again, d)
		}
	}
}

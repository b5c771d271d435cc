package wmamqp

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/order/lanes"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/internal/timing"
)

// maxAhead is the prefetch of a queue in lanes: what waits behind slow keys while others go on.
const maxAhead = 1000

// inLanes delivers the messages of one channel InFlight at a time, and never two of one key. It gives none back alone:
// what is not acked when the channel ends goes back together, and so in the order of the queue.
type inLanes struct {
	consumer *consumer
	ctx      context.Context // ends with the channel
	stop     context.CancelFunc

	taking      context.Context // ends before ctx if messages wait for long: then none begins, and those that run end
	takesNoMore context.CancelFunc

	owner    *sequence.Owner // of what is parked, if the order of keys is kept
	draining sync.WaitGroup
	latest   time.Time // when a message came

	mu   sync.Mutex
	open map[*laned]struct{} // not acked
}

// laned is a message in a lane.
type laned struct {
	delivery
	key   string
	given bool // a handler has had it; guarded by inLanes.mu
	placing.Chains

	order  sequence.Delivery // if the order of keys is kept
	parked *sequence.Lane    // there is no message: what is parked in the lane is to be delivered
}

// attempt is the context of one delivery of a message.
type attempt struct {
	context.Context
	of *laned
}

// Value answers for the adapter's own keys.
func (a *attempt) Value(key any) any {
	switch key.(type) {
	case deliveryKey:
		return a.of.info
	case placing.Key:
		return a.of
	}
	return a.Context.Value(key)
}

// runInLanes passes messages on until the subscription ends.
func (c *consumer) runInLanes() {
	placing.Lanes.Store(true)
	for c.sub.ctx.Err() == nil {
		c.channelInLanes()
		if c.sub.ctx.Err() == nil && !c.beginAgain() {
			return
		}
	}
}

// channelInLanes passes the messages of one channel on. It returns when no handler has one of them, or after the grace.
// The consumer is not cancelled: that would make another one active while these are not settled.
func (c *consumer) channelInLanes() {
	l := &inLanes{consumer: c, open: make(map[*laned]struct{})}
	l.ctx, l.stop = context.WithCancel(c.sub.drain.Work)
	l.taking, l.takesNoMore = context.WithCancel(l.ctx)
	defer context.AfterFunc(c.sub.ctx, l.takesNoMore)()
	all := lanes.New(lanes.Config[*laned]{
		Running: c.sub.config.InFlight, Items: maxAhead, Bytes: c.sub.config.maxPlacingBytes, Run: l.run,
		Key: l.laneOf, Size: func(d *laned) int { return d.size },
	})
	go l.watch(c.lost)
	defer l.returnToQueue()
	defer l.draining.Wait()
	defer all.Close()
	defer l.stop()
	if l.own(); l.owner != nil {
		l.drainAll(all)
	}
	for {
		select {
		case <-l.taking.Done():
			rest := time.AfterFunc(c.sub.config.MaxHold/2, l.stop)
			defer rest.Stop()
			all.Close()
			return
		case broker, ok := <-c.deliveries:
			if !ok {
				return
			}
			d, err := l.take(&broker)
			if err != nil {
				c.notResumed(err) // the message and those behind it come again when the consumer begins again
				return
			}
			if l.look(d) && all.Add(l.taking, d) != nil && l.taking.Err() == nil {
				return
			}
		}
	}
}

// watch ends the lanes with the channel. A message that has waited in its lane for MaxHold ends them too, before the
// broker closes the channel for its consumer_timeout, under the handlers that run.
func (l *inLanes) watch(lost <-chan struct{}) {
	look := time.NewTicker(max(l.consumer.sub.config.MaxHold/8, time.Millisecond))
	defer look.Stop()
	for {
		select {
		case <-lost:
			l.stop()
			return
		case <-l.ctx.Done():
			return
		case <-look.C:
			if l.waitsLong() {
				l.takesNoMore()
			}
		}
	}
}

// waitsLong reports whether a message that no handler has had was fetched MaxHold ago.
func (l *inLanes) waitsLong() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for d := range l.open {
		if !d.given && time.Since(d.began) > l.consumer.sub.config.MaxHold {
			return true
		}
	}
	return false
}

// take makes a delivery of what the broker sent.
func (l *inLanes) take(broker *amqp091.Delivery) (*laned, error) {
	msg, err := l.consumer.sub.config.AMQP.Marshaler.Unmarshal(*broker)
	if err != nil {
		return nil, fmt.Errorf("wmamqp: queue %q: read a message: %w", l.consumer.sub.queue, err)
	}
	d := &laned{delivery: delivery{of: l.consumer, broker: broker, size: len(broker.Body), began: time.Now(),
		msg: msg, id: msg.UUID}}
	if sub := l.consumer.sub; sub.source.Load().reorders(broker.Priority) {
		sub.priorities.Do(func() {
			eventPriorityReorders.Write(sub.config.Logger, nil,
				logging.Fields{logging.Queue: sub.queue, logging.MessageID: d.id, "priority": broker.Priority})
		})
	}
	d.info = deliveryOf(l.consumer.sub.queue, l.consumer.of.given.times(l.consumer.sub.queue, msg.UUID, broker), broker)
	l.mu.Lock()
	l.open[d] = struct{}{}
	l.mu.Unlock()
	msg.SetContext(&attempt{l.ctx, d})
	if d.key, err = lanes.KeyFrom(l.consumer.sub.config.Key, msg); err != nil {
		err = fmt.Errorf("wmamqp: queue %q waits: %w", l.consumer.sub.queue, err)
	}
	l.place(d)
	return d, err
}

// run delivers a message until it is acked. Its lane goes on when run returns.
func (l *inLanes) run(d *laned) {
	if d.parked != nil {
		l.owner.Drain(l.taking, l.ctx, d.parked, l.deliverParked)
		return
	}
	if l.deliver(d, l.ctx) && l.owner != nil { // a letter of a handler that acked may be on its way until it has returned
		l.acked(d)
	}
}

// deliver delivers a message until it is acked and the chain has returned. It reports false if the channel has ended, or
// is about to.
func (l *inLanes) deliver(d *laned, work context.Context) bool {
	for nacks := 0; l.taking.Err() == nil; nacks++ {
		ctx, cancel := context.WithCancel(work)
		if nacks > 0 {
			d.msg, d.order.Again = d.msg.Copy(), false
		}
		d.cancel = cancel
		d.msg.SetContext(&attempt{ctx, d})
		d.Deliver(d.msg)
		acked, again := l.deliverOnce(d)
		cancel()
		switch {
		case !again:
			return acked
		case d.broker != nil && time.Since(d.began) > l.consumer.sub.config.MaxHold:
			l.takesNoMore() // before the broker closes the channel for its consumer_timeout
			return false
		case !timing.Wait(l.taking, l.consumer.sub.config.backoff(nacks)):
			return false
		}
	}
	return false
}

// deliverOnce reports whether the message was acked and its chain has returned, or is to be delivered again.
func (l *inLanes) deliverOnce(d *laned) (acked, again bool) {
	grace := l.consumer.sub.config.settleGrace
	if l.owner != nil && d.broker != nil {
		d.order.Appends = l.owner.Waits(d.order.Lane)
	}
	select {
	case l.consumer.sub.out <- d.msg:
	case <-l.taking.Done():
		return false, false
	}
	l.mu.Lock()
	d.given = true
	l.mu.Unlock()
	select {
	case <-d.msg.Acked():
		if l.owner == nil {
			l.acked(d)
		}
		return d.untilReturned(l.ctx, grace), false
	case <-d.msg.Nacked():
		return false, d.untilReturned(l.ctx, grace)
	case <-l.ctx.Done():
		d.cancel()
		acked := l.consumer.grace(&d.delivery)
		if acked && l.owner == nil {
			l.acked(d)
		}
		return acked && d.broker != nil && d.hasReturned(), false
	}
}

// acked acks a message. On a channel that was lost this does nothing: the message comes again.
func (l *inLanes) acked(d *laned) {
	l.mu.Lock()
	delete(l.open, d)
	l.mu.Unlock()
	l.consumer.of.given.forget(l.consumer.sub.queue, d.id, d.broker)
	_ = d.broker.Ack(false)
}

// returnToQueue notes what goes back with the channel, because the queue counts it, and closes the channel.
func (l *inLanes) returnToQueue() {
	for d := range l.open {
		l.consumer.of.given.add(l.consumer.sub.queue, d.id, d.broker)
	}
	_ = l.consumer.channel.Close()
}

// untilReturned waits until the chain has returned: the handler may have settled its message itself. It reports false
// if the channel has ended.
func (d *laned) untilReturned(ctx context.Context, grace time.Duration) bool {
	returned := d.Returned()
	select {
	case <-returned:
		return ctx.Err() == nil
	case <-ctx.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-returned:
	case <-timer.C:
	}
	return false
}

func (d *laned) hasReturned() bool {
	select {
	case <-d.Returned():
		return true
	default:
		return false
	}
}

const (
	// standsBy is how long what is parked may be due before a consumer drains it that had no message on its channel
	// yet: nothing tells it whether it is the active one.
	standsBy = 30 * time.Second
	// silence is how long a channel may be without a message before its consumer looks at what is parked again. When
	// the nodes of a cluster lose each other, another one may have been active meanwhile, and nothing tells that
	// either.
	silence = 10 * time.Second
)

// own begins to know of what is parked, if the order of keys is kept.
func (l *inLanes) own() {
	sub := l.consumer.sub
	if sub.ordering == nil {
		return
	}
	l.owner = sub.ordering.Own(parked.Source{Group: l.consumer.host, Topic: sub.queue})
	l.owner.Late = sub.config.standsBy
}

// drainAll drains what is parked until no message begins any more, at first as one that stands by.
func (l *inLanes) drainAll(all *lanes.Lanes[*laned]) {
	l.draining.Go(func() { l.owner.StandBy(l.taking) })
	l.draining.Go(func() {
		l.owner.DrainAll(l.taking, func(lane *sequence.Lane) error {
			return all.AddBeside(l.taking, &laned{parked: lane})
		})
	})
}

// look looks at what is parked when the broker has sent the first message of the channel: then this consumer is the
// active one, and what the one before acked is passed, or parked for all to see. Then it waits until d could be parked.
// It reports false if no message begins any more.
func (l *inLanes) look(d *laned) bool {
	if l.owner == nil {
		return true
	}
	latest := l.latest
	l.latest = time.Now()
	return (l.latest.Sub(latest) < silence || l.owner.Load(l.taking)) && l.owner.Admit(l.taking, d.order.Lane)
}

// place says where a message stands. A queue has no offsets.
func (l *inLanes) place(d *laned) {
	if l.owner == nil {
		return
	}
	d.order = sequence.Delivery{Owner: l.owner, NoOffsets: true, SentAt: d.broker.Timestamp}
	if d.order.SentAt.IsZero() {
		d.order.SentAt = d.began
	}
	if d.key != "" {
		d.order.RecordKey = []byte(d.key)
		d.order.Lane = parked.LaneOf(d.order.RecordKey)
	}
}

// laneOf returns what stands for the key of a message, or for the lane whose parked messages are to be delivered.
func (l *inLanes) laneOf(d *laned) []byte {
	switch {
	case d.parked != nil:
		return d.parked.Key
	case l.owner != nil:
		return d.order.Lane
	case d.key == "":
		return nil
	}
	return []byte(d.key)
}

// Sequence is for chain.Call.
func (d *laned) Sequence() chain.Sequence {
	if d.order.Owner == nil {
		return nil
	}
	return &d.order
}

// deliverParked delivers a parked message until it is acked: it is passed, with its outputs published, or waits again.
func (l *inLanes) deliverParked(row *sequence.Row) (passed, again bool) {
	sub := l.consumer.sub
	order, work := l.owner.Parked(l.ctx, row)
	d := &laned{order: order, key: string(row.RecordKey),
		delivery: delivery{of: l.consumer, began: time.Now(), msg: row.Msg, id: row.Msg.UUID}}
	d.info = info{queue: sub.queue, timestamp: row.SentAt}
	if !l.deliver(d, work) {
		return false, false
	}
	return !d.order.Again, d.order.Again
}

package wmamqp

import (
	"context"
	"time"

	"github.com/watermill-spillway/spillway/internal/order/lanes"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/internal/timing/wait"
)

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
	l.owner = sub.ordering.Own(sequence.Source{Group: l.consumer.host, Topic: sub.queue})
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
		d.order.Lane = sequence.LaneOf(d.order.RecordKey)
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

// Sequenced is for package sequence.
func (d *laned) Sequenced() *sequence.Delivery {
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
	for nacks := 0; l.taking.Err() == nil; nacks++ {
		ctx, cancel := context.WithCancel(work)
		if nacks > 0 {
			d.msg, d.order.Again = d.msg.Copy(), false
		}
		d.msg.SetContext(&attempt{ctx, d})
		d.Deliver(d.msg)
		acked, back := l.deliverOnce(d)
		cancel()
		if acked {
			return !d.order.Again, d.order.Again
		}
		if !back || !wait.For(l.taking, l.backoff(nacks)) {
			break
		}
	}
	return false, false
}

// deliverOnce reports whether the message was acked and its chain has returned, or is to be delivered again.
func (l *inLanes) deliverOnce(d *laned) (acked, again bool) {
	grace := l.consumer.sub.config.settleGrace
	select {
	case l.consumer.sub.out <- d.msg:
	case <-l.taking.Done():
		return false, false
	}
	select {
	case <-d.msg.Acked():
		return d.untilReturned(l.ctx, grace), false
	case <-d.msg.Nacked():
		return false, d.untilReturned(l.ctx, grace)
	case <-l.ctx.Done():
		l.consumer.grace(&d.delivery)
		return false, false
	}
}

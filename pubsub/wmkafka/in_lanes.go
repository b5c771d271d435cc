package wmkafka

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/order/lanes"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/internal/timing"
)

// inLanes delivers records of a partition InFlight at a time, and never two of one key. Each record has an entry in
// marks from take on, so no offset is marked behind one that is not acked.
type inLanes struct {
	sub  *subscription
	room chan struct{} // has an item if a message has been settled since

	partition int32
	owner     *sequence.Owner // of what is parked, if the order of keys is kept

	mu    sync.Mutex
	marks marks
	marker
}

// laned is a delivery of lanes.
type laned struct {
	delivery
	placing.Chains

	key   []byte            // or nil
	order sequence.Delivery // if the order of keys is kept
	lane  *sequence.Lane    // there is no message: what is parked in the lane is to be delivered
}

// Sequence is for chain.Call.
func (d *laned) Sequence() chain.Sequence {
	if d.order.Owner == nil {
		return nil
	}
	return &d.order
}

func (s *subscription) consumeInLanes(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) {
	placing.Lanes.Store(true)
	l := &inLanes{
		sub: s, room: make(chan struct{}, 1), marker: s.marker(session),
		marks: marks{most: math.MaxInt, mostBytes: math.MaxInt, ahead: maxInFlight},
	}
	ctx := s.tenure.work
	if s.ordering != nil {
		l.partition = claim.Partition()
		l.owner = s.ordering.Own(parked.Source{Group: s.group, Topic: claim.Topic(), Partition: l.partition})
		if !l.owner.Load(session.Context()) { // behind the position, which the session has read
			return
		}
	}
	var draining sync.WaitGroup
	defer draining.Wait()
	all := lanes.New(lanes.Config[*laned]{
		Running: s.config.InFlight, Items: maxInFlight, Bytes: s.config.maxPlacingBytes, Run: l.run,
		Key: l.keyOf, Size: func(d *laned) int { return sizeOf(d.of.record) },
	})
	defer all.Close() // after settleGrace at most, after the tenure
	if l.owner != nil {
		until, stop := context.WithCancel(session.Context())
		defer stop()
		draining.Go(func() { l.drainAll(until, ctx, all) })
	}
	for l.hasRoom() {
		record := next(session, claim)
		if record == nil {
			return
		}
		d := new(laned)
		d.prepare(s, ctx, record)
		d.of.delivery = d
		if !d.knowsKey(session.Context()) {
			return
		}
		if l.owner != nil {
			d.order = sequence.Delivery{Owner: l.owner, Lane: parked.LaneOf(d.key), RecordKey: record.Key,
				Position: record.Offset, SentAt: record.Timestamp}
			if !l.owner.Admit(session.Context(), d.order.Lane) {
				return
			}
		}
		l.take(d)
		if all.Add(session.Context(), d) != nil { // the session has ended
			return
		}
	}
}

// hasRoom waits until a further record may be taken. It reports false if the session has ended.
func (l *inLanes) hasRoom() bool {
	for l.isFull() {
		select {
		case <-l.room:
		case <-l.session.Context().Done():
			return false
		}
	}
	return true
}

func (l *inLanes) isFull() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.marks.full()
}

func (l *inLanes) take(d *laned) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marks.take()
	d.placement = l.marks.place(d.of.record.Offset, nil, 0)
}

// keyOf returns what stands for the key of a message, or for the lane whose parked messages are to be delivered.
func (l *inLanes) keyOf(d *laned) []byte {
	switch {
	case d.lane != nil:
		return d.lane.Key
	case l.owner != nil:
		return d.order.Lane
	}
	return d.key
}

// run delivers a message until it is acked. Its lane goes on when run returns. After the end of the session nothing is
// delivered: the handler of the message in front may still be at work.
func (l *inLanes) run(d *laned) {
	if d.lane != nil {
		l.drain(d)
		return
	}
	if l.deliver(d) && l.owner != nil { // a letter of a handler that acked may be on its way until it has returned
		l.acked(d)
	}
}

// deliver delivers a message until it is acked and the chain has returned. It reports false if the session has ended.
func (l *inLanes) deliver(d *laned) bool {
	for d.Deliver(d.msg); l.session.Context().Err() == nil && l.sends(d); d.Deliver(d.msg) {
		outcome := d.settled(d.of.Done())
		d.cancel()
		switch {
		case outcome == abandoned:
			d.abandon()
			return false
		case outcome == acked && l.owner == nil:
			l.acked(d)
		}
		if !d.untilReturned() {
			return false
		}
		if outcome == acked {
			return true
		}
		if !timing.Wait(d.taking, d.pause()) {
			return false
		}
		d.order.Again = false
		d.msg = d.msg.Copy()
	}
	return false
}

// sends hands the message over. If messages of its key are parked, it goes behind them.
func (l *inLanes) sends(d *laned) bool {
	if l.owner != nil && d.placement != nil {
		d.order.Appends = l.owner.Waits(d.order.Lane)
	}
	return d.send()
}

// acked marks what is done, now that d is.
func (l *inLanes) acked(d *laned) {
	l.mu.Lock()
	l.marks.confirm(d.placement)
	l.mark(d.of.record, l.marks.position())
	l.mu.Unlock()
	if d.first.Load() {
		l.session.Commit()
	}
	l.commitMarked(&l.mu)
	select {
	case l.room <- struct{}{}:
	default:
	}
}

// untilReturned waits until the chain has returned: the handler may have acked or nacked its message itself. It reports
// false if the session has ended.
func (d *laned) untilReturned() bool {
	select {
	case <-d.Returned():
		return true
	case <-d.of.Done():
		return false
	}
}

// drainAll puts lanes with parked messages among the others when they are due, until ctx ends.
func (l *inLanes) drainAll(ctx, work context.Context, all *lanes.Lanes[*laned]) {
	l.owner.DrainAll(ctx, func(lane *sequence.Lane) error {
		d := &laned{lane: lane}
		d.sub, d.of = l.sub, recordContext{Context: work, record: &sarama.ConsumerMessage{}}
		return all.AddBeside(ctx, d)
	})
}

// drain delivers what is parked in a lane.
func (l *inLanes) drain(of *laned) {
	l.owner.Drain(l.session.Context(), &of.of, of.lane, func(row *sequence.Row) (passed, again bool) {
		return l.deliverParked(of.of.Context, row)
	})
}

// deliverParked delivers a parked message until it is acked: it is passed, with its outputs published, or waits again.
func (l *inLanes) deliverParked(work context.Context, row *sequence.Row) (passed, again bool) {
	record := &sarama.ConsumerMessage{Topic: l.sub.topic, Partition: l.partition, Offset: row.Position,
		Key:       row.RecordKey,
		Timestamp: row.SentAt}
	d := new(laned)
	d.sub, d.taking, d.msg = l.sub, l.session.Context(), row.Msg
	order, ctx := l.owner.Parked(work, row)
	d.order, d.of = order, recordContext{Context: ctx, record: record, group: l.sub.group, delivery: d}
	if !l.deliver(d) {
		return false, false
	}
	return !d.order.Again, d.order.Again
}

// knowsKey finds the key of the message. While SubscriberConfig.Key panics it waits: without a key the message would
// overtake others. It reports false if ctx ends.
func (d *laned) knowsKey(ctx context.Context) bool {
	of := d.sub.config.Key
	if of == nil {
		d.key = d.of.record.Key
		return true
	}
	for {
		key, err := lanes.KeyFrom(of, d.msg)
		if err == nil {
			if key != "" {
				d.key = []byte(key)
			}
			return true
		}
		eventKeyPanicked.Write(d.sub.config.Logger, fmt.Errorf("wmkafka: %w", err),
			logging.Fields{logging.Topic: d.sub.topic,
				logging.Partition: d.of.record.Partition, logging.MessageID: d.msg.UUID})
		if !timing.Wait(ctx, d.pause()) {
			return false
		}
	}
}

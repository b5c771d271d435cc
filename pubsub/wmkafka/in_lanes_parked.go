package wmkafka

import (
	"context"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/internal/lanes"
	"github.com/watermill-spillway/spillway/internal/sequence"
	"github.com/watermill-spillway/spillway/internal/wait"
)

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
	record := &sarama.ConsumerMessage{Topic: l.sub.topic, Partition: l.partition, Offset: row.Position, Key: row.RecordKey,
		Timestamp: row.SentAt}
	d := new(laned)
	d.sub, d.taking, d.msg = l.sub, l.session.Context(), row.Msg
	order, ctx := l.owner.Parked(work, row)
	d.order, d.of = order, recordContext{Context: ctx, record: record, group: l.sub.group, delivery: d}
	d.Deliver(d.msg)
	for l.session.Context().Err() == nil && d.send() {
		outcome := d.settled(d.of.Done())
		d.cancel()
		if outcome == abandoned {
			d.abandon()
			return false, false
		}
		switch returned := d.untilReturned(); {
		case !returned:
			return false, false
		case outcome == acked:
			return !d.order.Again, d.order.Again
		case !wait.For(d.taking, d.pause()):
			return false, false
		}
		d.order.Again = false
		d.msg = d.msg.Copy()
		d.Deliver(d.msg)
	}
	return false, false
}

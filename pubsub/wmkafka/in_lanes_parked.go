package wmkafka

import (
	"context"
	"time"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/lanes"
	"github.com/watermill-spillway/spillway/internal/sequence"
	"github.com/watermill-spillway/spillway/internal/wait"
)

// drainAll puts lanes with parked messages among the others when they are due, until ctx ends.
func (l *inLanes) drainAll(ctx, work context.Context, all *lanes.Lanes[*delivery]) {
	for {
		lane := l.owner.Next(ctx)
		if lane == nil {
			return
		}
		d := &delivery{sub: l.sub, lane: lane}
		d.of = recordContext{Context: work, record: &sarama.ConsumerMessage{}}
		if all.AddBeside(ctx, d) != nil {
			return
		}
	}
}

// lookAgain is when a lane is looked at again whose first message is held.
const lookAgain = time.Minute

// drain delivers the first messages that are parked in a lane, one after the other, until one must wait. Then those that
// have come from the source meanwhile are appended: they would fill the lanes otherwise.
func (l *inLanes) drain(of *delivery) {
	rows, ok := l.owner.Heads(l.session.Context(), of.lane)
	if !ok {
		return
	}
	if len(rows) == 0 {
		l.owner.Emptied(of.lane)
		return
	}
	for _, row := range rows {
		if row.Held {
			l.owner.Later(of.lane, time.Now().Add(lookAgain))
			return
		}
		if time.Until(row.Due) > 0 {
			l.owner.Later(of.lane, row.Due)
			return
		}
		switch passed, again := l.deliverParked(of.of.Context, row); {
		case again:
			l.owner.Later(of.lane, row.Due)
			return
		case !passed || !l.owner.Delete(&of.of, row):
			return
		}
	}
	l.owner.Later(of.lane, time.Now())
}

// deliverParked delivers a parked message until it is acked: it is passed, with its outputs published, or waits again.
func (l *inLanes) deliverParked(work context.Context, row *sequence.Row) (passed, again bool) {
	record := &sarama.ConsumerMessage{Topic: l.sub.topic, Partition: l.partition, Offset: row.Position, Key: row.RecordKey,
		Timestamp: row.SentAt}
	ctx := work
	if stage := l.owner.Open(row.Msg); stage > 0 {
		ctx = chain.WithReentry(ctx, &chain.Reentry{Topic: l.sub.topic, Stage: stage})
	}
	d := &delivery{sub: l.sub, taking: l.session.Context(), msg: row.Msg}
	d.of = recordContext{Context: ctx, record: record, group: l.sub.group, delivery: d}
	d.order = sequence.Delivery{Owner: l.owner, Lane: row.Lane, RecordKey: row.RecordKey, Position: row.Position,
		SentAt: row.SentAt, Row: row}
	d.Deliver(d.msg)
	for l.session.Context().Err() == nil && d.send() {
		outcome := d.settled(nil)
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

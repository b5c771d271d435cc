package sequence

import (
	"context"
	"time"

	"github.com/watermill-spillway/spillway/internal/chain"
)

// DrainAll calls add with each lane whose parked messages are due, until ctx ends or add returns an error. add puts the
// lane among the others of the subscriber, so that no message of its key runs beside the call of Drain.
func (o *Owner) DrainAll(ctx context.Context, add func(*Lane) error) {
	for {
		l := o.Next(ctx)
		if l == nil || add(l) != nil {
			return
		}
	}
}

// lookAgain is when a lane is looked at again whose first message is held.
const lookAgain = time.Minute

// Drain passes on the first messages that are parked in a lane, one after the other, until one must wait. Then those
// that have come from the source meanwhile are appended: they would fill the lanes otherwise.
//
// deliver delivers a message until it is acked and its chain has returned: it is passed, with its outputs published, or
// waits again. Neither is for a source that was lost meanwhile. No message begins when taking has ended. A row goes
// until work ends.
func (o *Owner) Drain(taking, work context.Context, l *Lane, deliver func(*Row) (passed, again bool)) {
	seen := o.seen()
	rows, ok := o.Heads(taking, l)
	if !ok {
		return
	}
	if len(rows) == 0 {
		o.leave(l, seen)
		return
	}
	for _, row := range rows {
		switch {
		case seen == 0 && !o.takes(taking, row): // it is another one's, as far as this process knows
			o.leave(l, seen)
			return
		case row.Held:
			o.Later(l, time.Now().Add(lookAgain))
			return
		case time.Until(row.Due) > 0:
			o.Later(l, row.Due)
			return
		case taking.Err() != nil:
			return
		}
		stop := o.atWork(work, row)
		passed, again := deliver(row)
		stop()
		switch {
		case again:
			o.Later(l, row.Due)
			return
		case !passed || !o.Delete(work, row):
			return
		}
	}
	o.Later(l, time.Now())
}

// Parked returns the delivery of a parked message, and ctx as its handler gets it. It opens the message.
func (o *Owner) Parked(ctx context.Context, row *Row) (Delivery, context.Context) {
	if stage := o.Open(row.Msg); stage > 0 {
		ctx = chain.WithReentry(ctx, &chain.Reentry{Topic: o.of.Topic, Stage: stage, Released: row.DecidedAt})
	}
	return Delivery{Owner: o, Lane: row.Lane, RecordKey: row.RecordKey, Position: row.Position, SentAt: row.SentAt,
		Row: row}, ctx
}

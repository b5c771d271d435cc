package wmkafka

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/placing"
	"github.com/watermill-spillway/spillway/internal/sequence"
)

// delivery is a record on its way to the consumer, which holds it until the ack.
type delivery struct {
	sub    *subscription
	of     recordContext   // ends with the tenure, as that of the message does
	taking context.Context // ends with the session
	msg    *message.Message
	now    *attempt // the context of the message
	begun  attempt
	waited time.Duration // before this delivery

	turn      *inTurn     // if the next message can be delivered while this one is placed
	placement *placement  // of the turn, once there is one
	first     atomic.Bool // it is placed, and committed, before the next message is delivered

	placing.Chains // of lanes

	key   []byte            // of lanes, or nil
	order sequence.Delivery // if the order of keys is kept
	lane  *sequence.Lane    // there is no message: what is parked in the lane is to be delivered
}

// Sequenced is for package sequence.
func (d *delivery) Sequenced() *sequence.Delivery {
	if d.order.Owner == nil {
		return nil
	}
	return &d.order
}

// Placing lets the next message be delivered while this one is placed elsewhere. It waits until those before it with
// its key are placed, or ctx ends.
func (d *delivery) Placing(ctx context.Context, msg *message.Message) {
	if d.turn == nil {
		return
	}
	for before := d.turn.placing(d, msg); before != nil; before = d.turn.before(d) {
		select {
		case <-before:
		case <-ctx.Done():
			return
		}
	}
}

// PlaceFirst lets the next message wait until this one is acked and committed, for placing.FirstFor at most.
func (d *delivery) PlaceFirst() { d.first.Store(true) }

// pause is the wait before the next delivery of a message that was nacked.
func (d *delivery) pause() time.Duration {
	d.waited = min(max(2*d.waited, d.sub.config.nackBackoff), d.sub.config.maxNackBackoff)
	return d.waited
}

// deliver prepares the delivery of a record. work is that of the tenure.
func (s *subscription) deliver(work context.Context, record *sarama.ConsumerMessage) *delivery {
	d := &delivery{sub: s, taking: s.tenure.session.Context(), msg: read(s.config.Unmarshaler, record)}
	d.of = recordContext{Context: work, record: record, group: s.group, delivery: d}
	return d
}

// send hands the message over, unless the session ends before that.
func (d *delivery) send() bool {
	if d.now == nil {
		d.now = &d.begun
	} else {
		d.now = new(attempt)
	}
	d.now.of = &d.of
	d.msg.SetContext(d.now)
	select {
	case d.sub.output <- d.msg:
		return true
	case <-d.taking.Done():
		d.abandon()
		return false
	}
}

// cancel ends the context of the message.
func (d *delivery) cancel() { d.now.cancel() }

type outcome int

const (
	acked outcome = iota
	nacked
	abandoned // neither, and the tenure has ended
	elsewhere // its handler is done, and the message is being placed
)

// settled waits until the message is, or until the tenure has ended and the grace after it. wake is of the turn of its
// handler, or nil.
func (d *delivery) settled(wake <-chan struct{}) outcome {
	for waiting := true; waiting; {
		select {
		case <-d.msg.Acked():
			return acked
		case <-d.msg.Nacked():
			return nacked
		case <-wake:
			if d.turn != nil && d.turn.isPlacing(d) {
				return elsewhere
			}
		case <-d.of.Done():
			waiting = false
		}
	}
	// The handler may just have done its work: an ack in time spares it a second delivery, because marks are committed
	// when the session is released.
	grace := time.NewTimer(d.sub.config.settleGrace)
	defer grace.Stop()
	select {
	case <-d.msg.Acked():
		return acked
	case <-d.msg.Nacked():
	case <-grace.C:
	}
	return d.unlessAcked()
}

// unlessAcked is abandoned, unless the message is acked all the same: of two channels that are ready, select takes any.
func (d *delivery) unlessAcked() outcome {
	select {
	case <-d.msg.Acked():
		return acked
	default:
		return abandoned
	}
}

func (d *delivery) abandon() {
	d.cancel()
	record := d.of.record
	logging.SessionEnded.Write(d.sub.config.Logger, nil, logging.Fields{
		logging.Topic: record.Topic, logging.Partition: record.Partition, logging.Offset: record.Offset,
	})
}

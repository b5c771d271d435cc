package wmkafka

import (
	"context"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/wait"
)

// delivery is a record on its way to the consumer, which holds it until the ack.
type delivery struct {
	*subscription
	of     recordContext // ends with the session
	msg    *message.Message
	ctx    context.Context // of the message, in this attempt
	cancel context.CancelFunc
}

// deliver prepares the delivery of a record. session is the context of the group session.
func (s *subscription) deliver(session context.Context, record *sarama.ConsumerMessage) *delivery {
	return &delivery{
		subscription: s,
		of:           recordContext{Context: session, record: record, group: s.group},
		msg:          read(s.config.Unmarshaler, record),
	}
}

// send hands the message over, unless the session ends before that.
func (d *delivery) send() bool {
	d.ctx, d.cancel = context.WithCancel(&d.of)
	d.msg.SetContext(d.ctx)
	select {
	case d.output <- d.msg:
		return true
	case <-d.ctx.Done():
		d.abandon()
		return false
	}
}

// fly sends the message, and sends to acked whether it was acked.
func (d *delivery) fly(acked chan<- bool) (sent bool) {
	defer func() {
		if !sent { // a logger may panic
			acked <- false
		}
	}()
	if sent = d.send(); sent {
		go func() { acked <- d.untilAcked() }()
	}
	return sent
}

// untilAcked sends a nacked message again, with backoff, and reports whether it was acked in the end. It was not if the session
// ended first: then a later ack or nack has no effect.
func (d *delivery) untilAcked() bool {
	for pause := d.config.NackBackoff; ; pause = min(2*pause, d.config.MaxNackBackoff) {
		outcome := d.settled()
		d.cancel()
		switch outcome {
		case acked:
			return true
		case abandoned:
			d.abandon()
			return false
		}
		if !wait.For(&d.of, pause) {
			return false
		}
		d.msg = d.msg.Copy()
		if !d.send() {
			return false
		}
	}
}

type outcome int

const (
	acked outcome = iota
	nacked
	abandoned // neither, and the session has ended
)

// settled waits until the message is, or until the session has ended and the grace after it.
func (d *delivery) settled() outcome {
	select {
	case <-d.msg.Acked():
		return acked
	case <-d.msg.Nacked():
		return nacked
	case <-d.ctx.Done():
	}
	// The handler may just have done its work: an ack in time spares it a second delivery, because marks are committed when
	// the session is released.
	grace := time.NewTimer(d.config.SettleGrace)
	defer grace.Stop()
	select {
	case <-d.msg.Acked():
		return acked
	case <-d.msg.Nacked():
		return abandoned
	case <-grace.C:
		return abandoned
	}
}

func (d *delivery) abandon() {
	d.cancel()
	record := d.of.record
	logging.SessionEnded.Write(d.config.Logger, nil, logging.Fields{
		logging.Topic: record.Topic, logging.Partition: record.Partition, logging.Offset: record.Offset,
	})
}

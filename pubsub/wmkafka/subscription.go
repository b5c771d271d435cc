package wmkafka

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
)

// subscription is one call of Subscribe. Watermill-kafka's subscriber keeps the connection and the group for it; where
// that one would wrap its handler for tracing, the subscription puts its own in the handler's place.
type subscription struct {
	member
	kafka.SaramaTracer // nil: there is always a group, and a subscriber calls no other method than that of groups

	topic  string
	ending context.Context // ends with the subscription
	cancel context.CancelFunc
	output chan *message.Message
	inner  *kafka.Subscriber
	ended  chan struct{}

	client      *sarama.Config
	connections *connections
	ordering    *sequence.Ordering // nil without an order of keys

	tenure *tenure // of the latest session

	lost atomic.Int64 // when the last session ended, in nanoseconds; 0 before the first
}

func newSubscription(ctx context.Context, of *Subscriber, topic string) *subscription {
	s := &subscription{member: member{&of.config, of.brokers, of.group}, topic: topic,
		output: make(chan *message.Message), ended: make(chan struct{})}
	s.client, s.connections = through(of.config.client)
	s.ending, s.cancel = context.WithCancel(ctx)
	return s
}

var _ kafka.SaramaTracer = (*subscription)(nil)

func (s *subscription) start(ctx context.Context, of *Subscriber) (<-chan *message.Message, error) {
	if err := of.mayRead(s.topic); err != nil {
		return nil, err
	}
	inner, err := kafka.NewSubscriber(of.watermill(s.client, s), s.config.Logger)
	if err != nil {
		return nil, err
	}
	s.inner = inner
	return inner.Subscribe(ctx, s.topic)
}

func (s *subscription) stop() {
	close(s.ended)
	s.cancel()
	if s.inner != nil {
		_ = s.inner.Close() // it has ended and returns no error; this ends what it left behind on reconnects
	}
}

// cutLater cuts the connections of a subscription that has been told to end and has not in due time. drain is how long
// its handlers may finish.
func (s *subscription) cutLater(drain time.Duration) {
	timer := time.NewTimer(drain + s.config.settleGrace + lastWords)
	defer timer.Stop()
	select {
	case <-timer.C:
		logging.SubscriptionCut.Write(s.config.Logger, errCut, nil)
		s.connections.cut()
	case <-s.ended:
	}
}

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
	behind    atomic.Bool // its placing waited for one before it with its key, as others may wait for this one
}

// Placing lets the next message be delivered while this one is placed elsewhere. It waits until those before it with
// its key are placed, or ctx ends.
func (d *delivery) Placing(ctx context.Context, msg *message.Message) {
	if d.turn == nil {
		return
	}
	for before := d.turn.placing(d, msg); before != nil; before = d.turn.before(d) {
		d.behind.Store(true)
		select {
		case <-before:
		case <-ctx.Done():
			return
		}
	}
}

// Aside reports whether nothing waits for the message to be placed.
func (d *delivery) Aside() bool { return d.turn != nil && !d.behind.Load() && d.turn.isPlacing(d) }

// PlaceFirst lets the next message wait until this one is acked and committed, for placing.FirstFor at most.
func (d *delivery) PlaceFirst() { d.first.Store(true) }

// pause is the wait before the next delivery of a message that was nacked.
func (d *delivery) pause() time.Duration {
	d.waited = min(max(2*d.waited, d.sub.config.nackBackoff), d.sub.config.maxNackBackoff)
	return d.waited
}

// deliver prepares the delivery of a record. work is that of the tenure.
func (s *subscription) deliver(work context.Context, record *sarama.ConsumerMessage) *delivery {
	d := new(delivery)
	d.prepare(s, work, record)
	d.of.delivery = d
	return d
}

func (d *delivery) prepare(s *subscription, work context.Context, record *sarama.ConsumerMessage) {
	d.sub, d.taking, d.msg = s, s.tenure.session.Context(), read(s.config.Unmarshaler, record)
	d.of = recordContext{Context: work, record: record, group: s.group}
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
	select { // most often the router waits for it, and a look costs half of a wait
	case d.sub.output <- d.msg:
		return true
	default:
	}
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
// handler, which wakes at the end of the tenure too, or the end of the tenure alone.
func (d *delivery) settled(wake <-chan struct{}) outcome {
	for d.of.Err() == nil {
		select { // a fourth channel would cost each message more
		case <-d.msg.Acked():
			return acked
		case <-d.msg.Nacked():
			return nacked
		case <-wake:
			if d.of.Err() == nil && d.turn != nil && d.turn.isPlacing(d) {
				return elsewhere
			}
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

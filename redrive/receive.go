package redrive

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/poison"
)

// ackTime is how long the subscription outlives the last ack. Subscribers, such as that of Redis Streams, pass an ack
// on in a goroutine of their own, and not after their context's end: the letter would come to the next drain again.
const ackTime = 250 * time.Millisecond

type settled struct {
	out outcome
	err error
}

func (d *topicDrain) run(parent context.Context) (err error) {
	ctx, cancel := context.WithCancel(parent)
	messages, err := d.subscriber.Subscribe(ctx, d.config.Topic)
	if err != nil {
		cancel()
		return err
	}
	defer func() {
		if err == nil && d.report.Taken > 0 {
			timing.Wait(parent, ackTime)
		}
		cancel()
		requeue(messages)
	}()

	done := make(chan settled, d.handler.Concurrency)
	working, ending := 0, false
	idle := time.NewTimer(d.config.IdleAfter)
	defer idle.Stop()
	for {
		incoming, ended := messages, parent.Done()
		if ending || working == d.handler.Concurrency || d.most > 0 && d.report.Taken == d.most {
			incoming = nil
			if working == 0 {
				return err
			}
		}
		if ending {
			ended = nil // what is in hand ends with it
		}
		idle.Reset(d.config.IdleAfter)
		select {
		case msg, ok := <-incoming:
			switch {
			case !ok:
				ending, err = true, errors.Join(err, errUnsubscribed, parent.Err())
			case d.cameBack(msg):
				msg.Nack()
				ending = true
			default:
				working++
				d.report.Taken++
				go d.settle(ctx, msg, done)
			}
		case s := <-done:
			working--
			d.count(s.out)
			if s.err != nil {
				ending, err = true, errors.Join(err, s.err)
				cancel()
			}
		case <-idle.C:
			ending = ending || working == 0
		case <-ended:
			ending, err = true, errors.Join(err, parent.Err())
		}
	}
}

var errUnsubscribed = errors.New("the subscription ended")

// cameBack reports whether msg is a letter that this very drain redrove.
func (d *topicDrain) cameBack(msg *message.Message) bool {
	l, err := poison.Decode(msg)
	return err == nil && l.Redrive.ID == d.handler.id
}

// settle handles one message until it is acked or nacked.
func (d *topicDrain) settle(ctx context.Context, msg *message.Message, done chan<- settled) {
	s := settled{err: errInterrupted}
	defer func() {
		if s.err != nil {
			msg.Nack()
		} else {
			msg.Ack()
		}
		done <- s
	}()
	both, cancel := context.WithCancel(msg.Context()) // the subscriber may not have derived it from the subscription's
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	s.out, s.err = d.handler.handle(both, msg, d.config.Topic)
}

func (d *topicDrain) count(out outcome) {
	switch out {
	case redriven:
		d.report.Redriven++
	case quarantined:
		d.report.Quarantined++
	case refused:
		d.report.Refused++
	case parked:
		d.report.Parked++
	case failed:
		d.report.Failed++
	case closed:
		d.report.Sealed++
	case requeued:
	}
}

// requeue nacks what comes between the end of the drain and that of its subscription.
func requeue(messages <-chan *message.Message) {
	patience := time.NewTimer(maxWrite)
	defer patience.Stop()
	for {
		select {
		case msg, ok := <-messages:
			if !ok {
				return
			}
			msg.Nack()
		case <-patience.C: // a subscriber that does not end its subscription
			return
		}
	}
}

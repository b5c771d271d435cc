package redrive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/safecall"
	"github.com/watermill-spillway/spillway/poison"
)

// DrainTopicConfig configures Drain. Subscriber, Topic and what a Handler requires are required.
type DrainTopicConfig struct {
	HandlerConfig
	// Subscriber reads the dead-letter topic. Drain ends its subscription and does not close it.
	Subscriber message.Subscriber
	// Topic is the dead-letter topic.
	Topic string
	// Max is how many messages are taken at the most. 0 means all.
	Max int
	// IdleAfter is how long no message must come before the topic counts as empty. Default: 5 s.
	IdleAfter time.Duration
	// Backlog tells how many messages wait in the topic. It is asked once, before the subscription; Drain ends after so
	// many. IdleAfter ends it all the same, without an error, where fewer come in time: let it be longer than a subscription
	// takes, and compare Report.Taken.
	Backlog func(ctx context.Context, topic string) (int, error)
}

func (c *DrainTopicConfig) validate() error {
	if safecall.IsNil(c.Subscriber) {
		return errors.New("redrive: DrainTopicConfig.Subscriber is nil")
	}
	if c.Topic == "" {
		return errors.New("redrive: DrainTopicConfig.Topic is empty: name the dead-letter topic")
	}
	if c.IdleAfter == 0 {
		c.IdleAfter = 5 * time.Second
	}
	if c.IdleAfter < 0 || c.Max < 0 {
		return fmt.Errorf("redrive: DrainTopicConfig.IdleAfter (%s) and Max (%d) must not be negative", c.IdleAfter, c.Max)
	}
	return nil
}

// Drain brings back what is in a dead-letter topic, once and without a router, as a Handler would, but for MinWait. It fails
// before it takes anything where <topic>.parked or <topic>.quarantine can be neither found nor created. It ends after the
// backlog that was there when it started, or when no message came for IdleAfter, or when a letter comes that it redrove
// itself and that failed again meanwhile: that one is nacked and left for the next drain. When a message can neither be
// brought back nor parked it is nacked and Drain ends with the error; when ctx ends, with the error of ctx and what is
// in hand given back. On its return it waits up to 30 s for the subscriber to close its channel.
func Drain(ctx context.Context, config DrainTopicConfig) (Report, error) {
	if err := config.validate(); err != nil {
		return Report{}, err
	}
	h, err := newHandler(config.HandlerConfig, "DrainTopicConfig")
	if err != nil {
		return Report{}, err
	}
	if err := h.Initialize(config.Topic); err != nil {
		return Report{ID: h.id}, err
	}
	d := &topicDrain{handler: h, config: config, most: config.Max, report: Report{ID: h.id}}
	if config.Backlog != nil {
		empty, err := d.snapshot(ctx)
		if err != nil || empty {
			return d.report, err
		}
	}
	if err := d.run(ctx); err != nil {
		return d.report, fmt.Errorf("redrive: drain %s of %q ended early: %w", h.id, config.Topic, err)
	}
	return d.report, nil
}

// topicDrain is one run over a topic. All of it belongs to the goroutine of run.
type topicDrain struct {
	handler *Handler
	config  DrainTopicConfig
	most    int // messages to take; 0 means no bound
	report  Report
}

// snapshot bounds the drain by the backlog and tells whether there is none.
func (d *topicDrain) snapshot(ctx context.Context) (empty bool, err error) {
	n := 0
	err = safecall.Call("redrive.Backlog", func() (err error) { n, err = d.config.Backlog(ctx, d.config.Topic); return err })
	if err != nil {
		return false, fmt.Errorf("redrive: ask for the backlog of %q: %w", d.config.Topic, err)
	}
	if d.most == 0 || n < d.most {
		d.most = n
	}
	return n <= 0, nil
}

type settled struct {
	out outcome
	err error
}

func (d *topicDrain) run(parent context.Context) (err error) {
	ctx, cancel := context.WithCancel(parent)
	messages, err := d.config.Subscriber.Subscribe(ctx, d.config.Topic)
	if err != nil {
		cancel()
		return err
	}
	defer func() {
		cancel()
		giveBack(messages)
	}()

	done := make(chan settled, d.handler.concurrency)
	working, ending := 0, false
	idle := time.NewTimer(d.config.IdleAfter)
	defer idle.Stop()
	for {
		incoming, ended := messages, parent.Done()
		if ending || working == d.handler.concurrency || d.most > 0 && d.report.Taken == d.most {
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

// cameBack tells whether msg is a letter that this very drain redrove.
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
	case givenBack:
	}
}

// giveBack nacks what comes between the end of the drain and that of its subscription.
func giveBack(messages <-chan *message.Message) {
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

package redrive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/errs/safecall"
)

// DrainTopicConfig configures DrainTopic. Rules.Allow, Topic and Park are required.
type DrainTopicConfig struct {
	Rules
	// Topic is the dead-letter topic. Required.
	Topic string
	// Park takes the letters that are not redriven, as HandlerConfig.Park does. Required.
	Park message.Publisher
	// Max is the largest number of messages that are taken. Default: all.
	Max int
	// IdleAfter is the time without a message after which the topic counts as empty. It must be longer than a
	// subscription takes. Default: 5 s.
	IdleAfter time.Duration
	// Backlog returns the number of messages that wait in the topic. It is called once, before the subscription.
	// DrainTopic ends after that many messages, or after IdleAfter without an error if fewer come: compare
	// Report.Taken. Default: none; then only IdleAfter ends the drain.
	Backlog func(ctx context.Context, topic string) (int, error)
	// FromBeginning lets the drain begin with the oldest message if the subscriber's consumer group has no offset in
	// the topic: at its first drain, or because the offsets are gone, for example because the group was deleted. Then
	// letters of earlier drains are redriven again. Default: false: that is an error, with wmkafka's subscriber.
	FromBeginning bool
}

// beginner is a subscriber whose consumer group's offsets can be lost, as that of wmkafka is.
type beginner interface {
	// Begun reports whether the group has an offset in topic, or topic has no message.
	Begun(ctx context.Context, topic string) (bool, error)
}

func (c *DrainTopicConfig) validate() error {
	if c.Topic == "" {
		return errors.New("redrive: DrainTopicConfig.Topic is empty: name the dead-letter topic")
	}
	if c.IdleAfter == 0 {
		c.IdleAfter = 5 * time.Second
	}
	if c.IdleAfter < 0 || c.Max < 0 {
		return fmt.Errorf("redrive: DrainTopicConfig.IdleAfter (%s) and Max (%d) must not be negative", c.IdleAfter,
			c.Max)
	}
	return nil
}

// DrainTopic redrives the letters of a dead-letter topic once, without a router, as a Handler without MinWait does. It
// fails before it takes a message if <topic>.parked or <topic>.quarantine can be neither found nor created. It does not
// close the subscriber. DrainTopic returns after one of these:
//   - it took Max messages, or as many as Backlog returned;
//   - no message came for IdleAfter;
//   - a letter came that it redrove itself and that failed again: this letter is nacked and left for the next drain;
//   - a message could be neither redriven nor parked: the message is nacked, and its error returned;
//   - ctx ended: the messages in hand are nacked, and the error of ctx is returned.
//
// At its end DrainTopic waits up to 30 s for the subscriber to close its channel.
func DrainTopic(ctx context.Context, subscriber message.Subscriber, publisher message.Publisher,
	config DrainTopicConfig) (Report, error) {
	if safecall.IsNil(subscriber) {
		return Report{}, errors.New("redrive: the subscriber is nil: give one that reads the dead-letter topic")
	}
	if err := config.validate(); err != nil {
		return Report{}, err
	}
	h, err := newHandler("DrainTopicConfig", publisher, config.Rules, config.Park, config.Naming, 0)
	if err != nil {
		return Report{}, err
	}
	if of, is := subscriber.(beginner); is && !config.FromBeginning {
		begun := false
		err := safecall.Call("redrive.Begun", func() (err error) { begun, err = of.Begun(ctx, config.Topic); return err })
		if err == nil && !begun {
			err = errNotBegun
		}
		if err != nil {
			return Report{}, fmt.Errorf("redrive: drain %q: %w", config.Topic, err)
		}
	}
	d := &topicDrain{handler: h, subscriber: subscriber, config: config, most: config.Max, report: Report{ID: h.id}}
	if err := h.initialize(config.Topic); err != nil {
		return d.report, err
	}
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

var errNotBegun = errors.New("the consumer group has no offset in the topic: this is its first drain, or its offsets are " +
	"gone, and then letters that were redriven before would be redriven again; set DrainTopicConfig.FromBeginning " +
	"(--from-beginning) to begin with the oldest message, or give the group its offsets again with Kafka's tools")

// topicDrain is one run over a topic. All of it belongs to the goroutine of run.
type topicDrain struct {
	handler    *Handler
	subscriber message.Subscriber
	config     DrainTopicConfig
	most       int // messages to take; 0 means no bound
	report     Report
}

// snapshot bounds the drain by the backlog and reports whether the backlog is empty.
func (d *topicDrain) snapshot(ctx context.Context) (empty bool, err error) {
	n := 0
	err = safecall.Call("redrive.Backlog", func() (err error) {
		n, err = d.config.Backlog(ctx, d.config.Topic)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("redrive: ask for the backlog of %q: %w", d.config.Topic, err)
	}
	if d.most == 0 || n < d.most {
		d.most = n
	}
	return n <= 0, nil
}

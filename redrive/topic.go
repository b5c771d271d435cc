package redrive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/poison"
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
	if of, is := hidden.In[inside.Group](subscriber); is && !config.FromBeginning {
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

// planSamples is how many letters a dry run shows.
const planSamples = 10

// topicPlanning is one PlanTopic.
type topicPlanning struct {
	rules
	config           DrainTopicConfig
	plan             inside.TopicPlan
	causes           inside.CauseCounts
	targets, refused inside.TopicCounts
}

func (p *topicPlanning) letter(l *poison.Letter, topic string) {
	p.plan.Letters++
	p.targets.Add(topic)
	p.causes.Add(l)
	if len(p.plan.Sample) < planSamples {
		p.plan.Sample = append(p.plan.Sample, inside.TopicLetter{Letter: *l, Target: topic})
	}
}

func (p *topicPlanning) result() inside.TopicPlan {
	p.plan.Causes, p.plan.Targets = p.causes.MostFirst(), p.targets.MostFirst(inside.MaxPlanned)
	p.plan.RefusedTopics = p.refused.MostFirst(inside.MaxPlanned)
	if p.Rate > 0 {
		p.plan.Takes = timing.Duration(float64(p.plan.Letters) / p.Rate * float64(time.Second))
	}
	return p.plan
}

// browser is a subscriber that shows messages without taking them, as those of wmkafka, wmamqp and wmsql do.
type browser interface {
	// Browse calls each with the messages of topic that the consumer group has not acked and that are there when Browse
	// begins, until each returns false. It settles and commits nothing: a subscription gets the messages as if Browse
	// had not been called.
	Browse(ctx context.Context, topic string, each func(*message.Message) (more bool)) error
}

// inner has the methods of a Handler that only Spillway's own packages call. They need no Handler.
type inner struct{}

// PlanTopic says what DrainTopic would do with the messages that wait in the topic now: a dry run. It commits,
// publishes and creates nothing. The subscriber must have the method Browse of wmkafka's, wmamqp's and wmsql's: any
// other shows a message only to take it. PlanTopic looks at no more messages than DrainTopic would take. Of config
// it needs no Park, and does not call Backlog. If ctx ends or the broker fails, it returns what it counted until
// then, and the error.
func (inner) PlanTopic(ctx context.Context, subscriber message.Subscriber,
	config DrainTopicConfig) (none inside.TopicPlan,
	err error) {
	if safecall.IsNil(subscriber) {
		return none, errors.New("redrive: the subscriber is nil: give one that reads the dead-letter topic")
	}
	if err := config.validate(); err != nil {
		return none, err
	}
	browsing, is := subscriber.(browser)
	if !is {
		return none, fmt.Errorf("redrive: the subscriber has no method Browse: %T: use a subscriber of wmkafka, wmamqp or wmsql, or give yours the method Browse of those", subscriber)
	}
	working, err := newRules("DrainTopicConfig", nowhere{}, config.Rules)
	if err == nil {
		err = working.ofTopic("DrainTopicConfig")
	}
	if err != nil {
		return none, err
	}
	p := &topicPlanning{rules: working, config: config, causes: inside.CauseCounts{},
		targets: inside.TopicCounts{}, refused: inside.TopicCounts{}}
	err = safecall.Call("redrive.Browser", func() error {
		return browsing.Browse(ctx, config.Topic, func(msg *message.Message) bool {
			if config.Max > 0 && p.plan.Messages == config.Max {
				return false
			}
			p.look(msg)
			return (config.Max == 0 || p.plan.Messages < config.Max) && ctx.Err() == nil
		})
	})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		err = fmt.Errorf("redrive: plan a drain of %q: %w", config.Topic, err)
	}
	return p.result(), err
}

// nowhere is the publisher of a dry run.
type nowhere struct{}

func (nowhere) Publish(string, ...*message.Message) error {
	return errors.New("redrive: a dry run publishes nothing")
}
func (nowhere) Close() error { return nil }

// look counts what a drain would do with a message, in the order in which Handler.handle decides it.
func (p *topicPlanning) look(msg *message.Message) {
	p.plan.Messages++
	l, err := poison.Decode(msg)
	if err != nil {
		p.plan.NoLetters++
		return
	}
	l.DeadLetterTopic = p.config.Topic
	if !p.Filter.Matches(l) {
		p.plan.NotChosen++
		return
	}
	if p.spent(l) {
		p.plan.Quarantine++
		return
	}
	topic, err := p.target(l)
	if err != nil {
		p.plan.Refused++
		p.refused.Add(topic)
		return
	}
	p.letter(&l, topic)
}

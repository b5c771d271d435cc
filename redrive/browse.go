package redrive

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/poison"
)

// browser is a subscriber that shows messages without taking them, as those of wmkafka, wmamqp and wmsql do.
type browser interface {
	// Browse calls each with the messages of topic that the consumer group has not acked and that are there when Browse
	// begins, until each returns false. It settles and commits nothing: a subscription gets the messages as if Browse
	// had not been called.
	Browse(ctx context.Context, topic string, each func(*message.Message) (more bool)) error
}

// Inside returns what Spillway's own packages call of this one, and its users do not. Nothing is promised of it.
func Inside() inside.Drains[DrainTopicConfig] { return inner{} }

type inner struct{}

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
	p := &topicPlanning{rules: working, config: config, causes: make(map[inside.PlannedCause]*plannedCause),
		targets: make(map[string]int), refused: make(map[string]int)}
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
		p.count(p.refused, topic)
		return
	}
	p.letter(&l, topic)
}

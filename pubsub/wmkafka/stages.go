package wmkafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hold/due"
	"github.com/watermill-spillway/spillway/internal/hold/graceful"
)

// NewStages connects to the cluster, and returns what publishes to the retry stages of a service and what consumes
// them, over two clients for all handlers and stages together. Both are for stages.Config:
//
//	waiting, subscribe, err := wmkafka.NewStages(brokers, "shop", wmkafka.SubscriberConfig{}, wmkafka.PublisherConfig{})
//	config := stages.Config{Publisher: waiting, Subscriber: subscribe}
//
// All instances of the service share one consumer group, in which each has one member. group is its name, such as the
// service's, and has the offsets of all stages: under another name, all messages that stages ever had come again. Let
// no other subscriber use it, whose rebalances would interrupt the stages.
//
// SubscriberConfig.InFlight is 16 by default here, and due messages of one key are handled at the same time too.
// Messages that wait are not handled and cost no goroutine. One that fails again makes room for the next one while it
// is placed, unless InFlight is 1. At most MaxPlacing messages are taken from the first unacked one on. A message
// whose subscriber has gone on waits up to 2 ms, to share its request with others. Others go over a client of their
// own, which opens at the first. No message waits if PublisherConfig.Sarama sets Producer.Flush. The publisher uses the
// subscriber's Logger if it has no other. Close it after the last router that uses it.
//
// brokers are the addresses of some brokers. An error names the argument or the field that is wrong.
func NewStages(brokers []string, group string, sub SubscriberConfig, pub PublisherConfig) (*Publisher,
	func(topic, group string) (message.Subscriber, error), error) {
	sub.InFlight = cmp.Or(sub.InFlight, stagesInFlight)
	pub.linger = cmp.Or(pub.linger, linger)
	if pub.Logger == nil {
		pub.Logger = sub.Logger
	}
	checked, err := NewSubscriber(brokers, group, sub)
	if err != nil {
		return nil, nil, err
	}
	publisher, err := NewPublisher(brokers, pub)
	if err != nil {
		return nil, nil, err
	}
	publisher.stages = group
	of := &stageGroup{member: member{&checked.config, brokers, group}, topics: make(map[string]*stageTopic)}
	return publisher, of.subscriber, nil
}

// linger is how long a message for which nothing waits is kept for others to share its request. Without it most
// requests carry one record while few messages fail.
const linger = 2 * time.Millisecond

// stagesInFlight is how many due messages of a partition are handled at the same time by default. A downstream that has
// just recovered must bear them.
const stagesInFlight = 16

// subscriber returns the subscriber of a stage topic.
func (g *stageGroup) subscriber(topic, _ string) (message.Subscriber, error) {
	if topic == "" {
		return nil, errors.New("wmkafka: the subscriber of a stage: the topic is empty")
	}
	own := &stageSubscriber{of: g, topic: topic}
	own.closed, own.close = context.WithCancel(context.Background())
	return own, nil
}

// stageSubscriber consumes one stage topic, as a part of the group of all.
type stageSubscriber struct {
	of     *stageGroup
	topic  string
	closed context.Context
	close  context.CancelFunc

	mu     sync.Mutex
	topics []*stageTopic
}

var errNotStages = errors.New("wmkafka: a subscriber of NewStages is for its stage topic and for " +
	"stages.Config.Subscriber alone; use NewSubscriber")

// Subscribe hands the messages of the stage topic to the stage when they are due. The channel carries none. It is
// closed when ctx has ended, or the Subscriber is closed, and what is acked is committed.
func (s *stageSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	stage := due.Of(ctx)
	if stage == nil || topic != s.topic {
		return nil, errNotStages
	}
	graceful.Drains(ctx)
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(s.closed, cancel)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Err() != nil {
		return nil, ErrClosed
	}
	t := &stageTopic{name: topic, stage: stage, ctx: ctx, out: make(chan *message.Message)}
	if err := s.of.add(t); err != nil {
		cancel()
		return nil, fmt.Errorf("wmkafka: subscribe to %q: %w", topic, err)
	}
	s.topics = append(s.topics, t)
	return t.out, nil
}

var _ due.Subscriber = (*stageSubscriber)(nil)

// HoldsUntilDue says so.
func (s *stageSubscriber) HoldsUntilDue() {}

// RedeliveryTime returns 0, as that of Subscriber does.
func (s *stageSubscriber) RedeliveryTime() time.Duration { return 0 }

// Close ends the subscription, as that of Subscriber does. Other stage topics are consumed further.
func (s *stageSubscriber) Close() error {
	s.close()
	s.mu.Lock()
	topics := s.topics
	s.mu.Unlock()
	for _, t := range topics {
		s.of.end(t)
	}
	return nil
}

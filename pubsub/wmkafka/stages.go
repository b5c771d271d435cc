package wmkafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/due"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka/internal/stagegroup"
	"github.com/watermill-spillway/spillway/settings"
)

// StagesConfig configures Stages. The zero value is safe.
type StagesConfig struct {
	// Publisher configures the publisher of stage topics. It closes its connections one minute after
	// its last message, and opens them at the next one.
	Publisher PublisherConfig
	// Unmarshaler reads records. Default: Marshaler{}.
	Unmarshaler kafka.Unmarshaler
	// Sarama configures the client that consumes. It is copied. Default: SaramaSubscriberConfig().
	Sarama *sarama.Config
	// InFlight is the number of due messages of a partition that are handled at the same time, counted from the first
	// unacked one. A downstream that has just recovered must bear them. A message with a longer jitter then does not hold
	// up those behind it. Messages that wait are not handled and cost no goroutine. Default: 16.
	InFlight int
	// Shared: Logger receives the events of the consumer, and those of the publisher if it has no other.
	settings.Shared
}

// Stages publishes to the retry stages of a service and consumes them, over two clients for all handlers and stages
// together. It is for stages.Config:
//
//	waiting, err := wmkafka.NewStages(brokers, "shop", wmkafka.StagesConfig{})
//	config := stages.Config{Publisher: waiting, Subscriber: waiting.Subscriber}
//
// All instances of the service share one consumer group, in which each has one member. The group has the given name and
// distributes the partitions. The offsets of a stage topic stay in the group that is named as the topic, as with a
// Subscriber for each stage. So a service can change from one to the other and back: while an instance with Subscribers
// lives, its topics are left to it.
//
// Close the Stages after the last router that uses it.
type Stages struct {
	*Publisher
	group    string
	config   *SubscriberConfig
	consumer *stagegroup.Group
}

// NewStages connects to the cluster. brokers are the addresses of some of its brokers. group is the consumer group of
// all instances of the service, such as the service's name. It must not be the group of another subscriber: then the
// stages' subscription, and so the router's start, is an error. An error names the argument or the field of config that
// is wrong.
func NewStages(brokers []string, group string, config StagesConfig) (*Stages, error) {
	if config.InFlight == 0 {
		config.InFlight = 16
	}
	if config.Publisher.maxIdle == 0 {
		config.Publisher.maxIdle = maxIdle
	}
	if config.Publisher.Logger == nil {
		config.Publisher.Logger = config.Logger
	}
	sub, err := NewSubscriber(brokers, group, SubscriberConfig{
		Unmarshaler: config.Unmarshaler, Sarama: config.Sarama, InFlight: config.InFlight,
		Shared: settings.Shared{Logger: config.Logger},
	})
	if err != nil {
		return nil, err
	}
	pub, err := NewPublisher(brokers, config.Publisher)
	if err != nil {
		return nil, err
	}
	return &Stages{Publisher: pub, group: group, config: &sub.config,
		consumer: newStageGroup(brokers, group, &sub.config)}, nil
}

// Subscriber returns the subscriber of a stage topic, whose offsets are in group. It is the function for
// stages.Config.Subscriber.
func (s *Stages) Subscriber(topic, group string) (message.Subscriber, error) {
	if topic == "" || group == "" {
		return nil, fmt.Errorf("wmkafka: Stages.Subscriber: the topic (%q) or the group (%q) is empty", topic, group)
	}
	if group == s.group {
		return nil, fmt.Errorf("wmkafka: Stages.Subscriber: stage topic %q has the group %q, which is that of all stages: "+
			"give NewStages another one", topic, group)
	}
	own := &stageSubscriber{of: s, topic: topic, group: group}
	own.closed, own.close = context.WithCancel(context.Background())
	return own, nil
}

func newStageGroup(brokers []string, group string, c *SubscriberConfig) *stagegroup.Group {
	return stagegroup.New(stagegroup.Config{
		Group: group, InFlight: c.InFlight, NackBackoff: c.NackBackoff, MaxNackBackoff: c.maxNackBackoff,
		SettleGrace: c.settleGrace, Logger: c.Logger,
		Connect: func(strategy sarama.BalanceStrategy) (sarama.Client, func(), error) {
			config, connections := through(c.Sarama)
			config.Consumer.Group.Rebalance.Strategy = strategy
			config.Consumer.Offsets.AutoCommit.Enable = false // the group has no offsets
			config.Consumer.Return.Errors = false
			client, err := sarama.NewClient(brokers, config)
			return client, connections.cut, err
		},
		Read: func(record *sarama.ConsumerMessage) *message.Message { return read(c.Unmarshaler, record) },
		Context: func(ctx context.Context, record *sarama.ConsumerMessage, group string) context.Context {
			return &recordContext{Context: ctx, record: record, group: group}
		},
	})
}

// stageSubscriber consumes one stage topic, as a part of the group of all.
type stageSubscriber struct {
	of           *Stages
	topic, group string
	closed       context.Context
	close        context.CancelFunc

	mu     sync.Mutex
	topics []*stagegroup.Topic
}

var errNotStages = errors.New("wmkafka: a subscriber of Stages is for its stage topic and for " +
	"stages.Config.Subscriber alone; use NewSubscriber")

// Subscribe hands the messages of the stage topic to the stage when they are due. The channel carries none. It is
// closed when ctx has ended, or the Subscriber is closed, and what is acked is committed.
func (s *stageSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	stage := due.Of(ctx)
	if stage == nil || topic != s.topic {
		return nil, errNotStages
	}
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(s.closed, cancel)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Err() != nil {
		return nil, ErrClosed
	}
	leave, err := enterGroup(s.of.brokers, s.of.group, true)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("wmkafka: subscribe to %q: %w", topic, err)
	}
	context.AfterFunc(ctx, leave)
	t := &stagegroup.Topic{Name: topic, Group: s.group, Stage: stage}
	out, err := s.of.consumer.Add(ctx, t)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("wmkafka: subscribe to %q: %w", topic, err)
	}
	s.topics = append(s.topics, t)
	return out, nil
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
		s.of.consumer.End(t, s.of.config.settleGrace+lastWords)
	}
	return nil
}

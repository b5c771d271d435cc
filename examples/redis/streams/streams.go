package streams

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
)

// Config is for a publisher or a subscriber.
type Config struct {
	// Options say where Redis is. Each publisher and each subscriber makes a client of its own, which it closes with
	// itself.
	Options redis.Options
	// Group is the consumer group of a subscriber. Without a group there are no acks, and a message that is not handled
	// is gone.
	Group string
	// MaxIdle is the time after which a message that has no ack is delivered again, even if its handler still runs. It
	// has to be longer than a message is handled, with the two messages that were taken before it. What a killed
	// consumer had comes after this time. Default: 1 minute.
	MaxIdle time.Duration
	// Unmarshaler reads a message. Default: Watermill's own.
	Unmarshaler redisstream.Unmarshaller
}

func (c Config) client() redis.UniversalClient {
	options := c.Options
	return redis.NewClient(&options)
}

// Publisher is Watermill's publisher, whose Close waits for messages that are on their way: Watermill's own races with
// Publish.
type Publisher struct {
	*redisstream.Publisher
	closing sync.RWMutex
}

// NewPublisher returns a publisher that does not trim streams: a letter that is trimmed is lost.
func NewPublisher(config Config, logger watermill.LoggerAdapter) (*Publisher, error) {
	pub, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: config.client(), Marshaller: Marshaler{}},
		logger)
	if err != nil {
		return nil, err
	}
	return &Publisher{Publisher: pub}, nil
}

// Publish returns when Redis has the messages.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	p.closing.RLock()
	defer p.closing.RUnlock()
	return p.Publisher.Publish(topic, messages...)
}

// Close ends the publisher.
func (p *Publisher) Close() error {
	p.closing.Lock()
	defer p.closing.Unlock()
	return p.Publisher.Close()
}

// Subscriber is Watermill's subscriber, which says when Redis delivers a message again.
type Subscriber struct {
	*redisstream.Subscriber
	client  redis.UniversalClient
	group   string
	maxIdle time.Duration
}

// NewSubscriber returns a subscriber of a consumer group.
func NewSubscriber(config Config, logger watermill.LoggerAdapter) (*Subscriber, error) {
	if config.MaxIdle == 0 {
		config.MaxIdle = time.Minute
	}
	s := &Subscriber{client: config.client(), group: config.Group, maxIdle: config.MaxIdle}
	var err error
	s.Subscriber, err = redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client:        s.client,
		ConsumerGroup: config.Group,
		Unmarshaller:  Marshaler{config.Unmarshaler},
		MaxIdleTime:   config.MaxIdle,
		ClaimInterval: config.MaxIdle / 6,
		// By default a message that is nacked comes again at once, without end.
		NackResendSleep: 100 * time.Millisecond,
		// Otherwise a subscription that ended before its first message takes that message with it.
		DisableIndefiniteInitialBlock: true,
		// Otherwise a subscription to a stream that was deleted stays, and gets nothing. Now it ends, and the next one
		// makes the group.
		ShouldStopOnReadErrors: func(err error) bool { return strings.HasPrefix(err.Error(), "NOGROUP") },
	}, logger)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// RedeliveryTime returns Config.MaxIdle.
func (s *Subscriber) RedeliveryTime() time.Duration { return s.maxIdle }

// Backlog returns how many messages of the topic the group was not given, or has not acked: it is
// redrive.DrainTopicConfig.Backlog.
func (s *Subscriber) Backlog(ctx context.Context, topic string) (int, error) {
	waiting, err := s.client.XLen(ctx, topic).Result()
	if err != nil || waiting == 0 {
		return 0, err
	}
	groups, err := s.client.XInfoGroups(ctx, topic).Result()
	if err != nil {
		return 0, err
	}
	for _, g := range groups {
		switch {
		case g.Name != s.group:
		case g.Lag >= 0:
			return int(g.Lag + g.Pending), nil
		default: // Redis does not know it after some restarts and deletions
			rest, err := s.client.XRange(ctx, topic, "("+g.LastDeliveredID, "+").Result()
			return len(rest) + int(g.Pending), err
		}
	}
	return int(waiting), nil
}

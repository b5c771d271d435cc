package wmkafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/hold/graceful"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/observe"
)

var errNoBrokers = errors.New("wmkafka: there are no brokers: give the address of at least one")

// ErrClosed is returned by a Subscriber or Publisher after Close.
var ErrClosed = errors.New("wmkafka: closed")

// maxInFlight bounds what a process holds of a partition, and what comes again.
const maxInFlight = 10_000

const (
	// maxPlacingBytes bounds the keys, headers and values of the messages of a partition that are placed at a time.
	maxPlacingBytes = 16 << 20
	// nackBackoff is the wait before a nacked message is delivered again. It doubles with every redelivery of the same
	// message, up to maxNackBackoff. Longer waits are for retry stages.
	nackBackoff    = 100 * time.Millisecond
	maxNackBackoff = 5 * time.Second
	// settleGrace is how long a handler may take to ack after the group session ended and the message's context was
	// cancelled. All members of the group wait for it, so it is short.
	settleGrace = time.Second
)

// SubscriberConfig configures a Subscriber. The zero value is safe.
type SubscriberConfig struct {
	// Unmarshaler reads records. A record that it cannot read becomes a message that poison.Queue dead-letters.
	// Default: Marshaler{}.
	Unmarshaler kafka.Unmarshaler
	// Sarama changes the client's configuration: security, a client id, a proxy. It is called once, with a
	// configuration of the client's own that reads a new group's topics from the oldest message, leaves out aborted
	// transactions, sends a heartbeat each second and notices a silent broker within 30 s. Default: no change.
	Sarama func(*sarama.Config)
	// InFlight is the number of messages of a partition that are handled at the same time. Messages with the same
	// record key are handled one at a time, in the order of the partition, and a nacked one holds up those behind it.
	// Records without a key have no order. While a message is unacked, up to 10,000 messages behind it can be acked. If
	// the session ends before that one is acked, they are redelivered, in the order of each key: the idempotent
	// receiver applies their effects once. Default: 1, for an order of the whole partition.
	InFlight int
	// Key returns the key that InFlight and spillway.Config.Ordered keep in order: of the message's metadata, or of its
	// payload. It must always return the same for a message. "" is no key, and no order. If Key panics, the partition
	// waits, and the log says so. Default: the record's key.
	Key func(*message.Message) string
	// MaxPlacing is the number of failed messages of a partition that are placed while the next ones are handled:
	// published to a retry stage, or as a dead letter. At this number, or at 16 MiB of keys, headers and values, the
	// subscriber waits. No offset behind such a
	// message is committed before its placement is confirmed. So more of them means more messages that can be handled
	// again after a crash, 10,000 at most. A negative value means none: the next message waits for the confirm.
	// Default: 1000. With InFlight above 1 it means nothing, except for NewStages.
	MaxPlacing int
	// Shared: Logger receives the events of subscriptions.
	observe.Shared

	client *sarama.Config // which Sarama has changed
	// What is below is the constant of the same name, and something else in tests.
	maxPlacingBytes                          int
	nackBackoff, maxNackBackoff, settleGrace time.Duration
}

func (c *SubscriberConfig) setDefaults() {
	if c.Unmarshaler == nil {
		c.Unmarshaler = Marshaler{}
	}
	c.client = subscriberDefaults()
	if c.Sarama != nil {
		c.Sarama(c.client)
	}
	c.InFlight = cmp.Or(c.InFlight, 1)
	c.MaxPlacing = cmp.Or(c.MaxPlacing, 1000)
	c.maxPlacingBytes = cmp.Or(c.maxPlacingBytes, maxPlacingBytes)
	c.nackBackoff = cmp.Or(c.nackBackoff, nackBackoff)
	c.maxNackBackoff = cmp.Or(c.maxNackBackoff, max(maxNackBackoff, c.nackBackoff))
	c.settleGrace = cmp.Or(c.settleGrace, settleGrace)
	c.Logger = logging.Wrap(c.Logger, nil)
}

func (c *SubscriberConfig) validate() error {
	if c.InFlight < 0 || c.InFlight > maxInFlight {
		return fmt.Errorf("wmkafka: SubscriberConfig.InFlight is %d: it must be 1 to %d messages of a partition",
			c.InFlight,
			maxInFlight)
	}
	if c.Key != nil && c.InFlight == 1 {
		return errors.New("wmkafka: SubscriberConfig.Key with InFlight 1: one message at a time is in the order of the partition " +
			"anyway; set InFlight to the number of keys that are handled at the same time, or leave Key out")
	}
	if c.MaxPlacing > maxInFlight {
		return fmt.Errorf("wmkafka: SubscriberConfig.MaxPlacing is %d: it must be at most %d messages of a partition",
			c.MaxPlacing, maxInFlight)
	}
	if err := c.client.Validate(); err != nil {
		return fmt.Errorf("wmkafka: SubscriberConfig.Sarama: %w", err)
	}
	return nil
}

// Subscriber consumes topics in a consumer group. The context of a message ends soon after the group session, so that
// the end of a session is no failure. A record that cannot be read becomes a dead letter. A nacked message is
// redelivered with a backoff, and never after its session. One message is in flight per partition, or InFlight. It is
// safe for concurrent use.
type Subscriber struct {
	handle
	brokers []string
	group   string
	config  SubscriberConfig

	lock          sync.Mutex
	closed        bool
	subscriptions map[*subscription]struct{}
	running       sync.WaitGroup
}

// NewSubscriber returns a Subscriber whose subscriptions join the consumer group. brokers are the addresses of some of
// the cluster's brokers. It does not connect. An error names the argument or the field of config that is wrong.
func NewSubscriber(brokers []string, group string, config SubscriberConfig) (*Subscriber, error) {
	if len(brokers) == 0 {
		return nil, errNoBrokers
	}
	if group == "" {
		return nil, errors.New("wmkafka: the consumer group is empty: without a group no offset is kept, and every start " +
			"would skip or repeat messages; name a group, or use watermill-kafka's own subscriber with wmkafka.Marshaler")
	}
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	s := &Subscriber{brokers: brokers, group: group, config: config, subscriptions: make(map[*subscription]struct{})}
	s.handle = hidden.By[inside.Group]((*inner)(s))
	return s, nil
}

type handle = hidden.Handle[inside.Group]

// Subscribe joins the group and delivers the messages of topic until ctx ends or the Subscriber is closed; then the
// channel is closed. Every call joins the group as a member of its own, with its own connection. It returns an error if
// no broker answers, and ErrClosed after Close.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	graceful.Drains(ctx)
	sub := newSubscription(ctx, s, topic)
	ctx = sub.ending
	if s.config.InFlight > 1 {
		if sub.ordering = sequence.Take(ctx); sub.ordering != nil {
			keptApart(sub.client)
		}
	}
	if err := s.begin(sub); err != nil {
		sub.cancel()
		return nil, err
	}
	context.AfterFunc(ctx, func() { sub.cutLater(graceful.TimeoutOf(ctx)) })
	silent, err := sub.start(ctx, s)
	if err != nil {
		s.end(sub)
		return nil, fmt.Errorf("wmkafka: subscribe to %q: %w", topic, err)
	}
	go func() {
		for range silent { // nothing comes: our handler took the place of the one that would send
		}
		close(sub.output)
		s.end(sub)
	}()
	return sub.output, nil
}

func (s *Subscriber) begin(sub *subscription) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.subscriptions[sub] = struct{}{}
	s.running.Add(1)
	return nil
}

func (s *Subscriber) end(sub *subscription) {
	sub.stop()
	s.lock.Lock()
	delete(s.subscriptions, sub)
	s.lock.Unlock()
	s.running.Done()
}

// RedeliveryTime returns 0: a message is redelivered after its session, and when its context has ended, never before.
func (s *Subscriber) RedeliveryTime() time.Duration { return 0 }

// Close takes no more messages, and returns when all subscriptions have ended. Busy handlers may finish, for 5 s or
// spillway.Config.DrainTimeout. Then their contexts end, and they have one second to ack. The offsets of acked messages
// are committed, and the members leave the group. If the brokers do not answer for 5 s more, the connections are cut.
// Then messages that were acked in the last second may be redelivered.
func (s *Subscriber) Close() error {
	s.lock.Lock()
	s.closed = true
	for sub := range s.subscriptions {
		sub.cancel()
	}
	s.lock.Unlock()
	s.running.Wait()
	return nil
}

// watermill is the configuration of watermill-kafka's subscriber.
func (s *Subscriber) watermill(client *sarama.Config, tracer kafka.SaramaTracer) kafka.SubscriberConfig {
	return kafka.SubscriberConfig{
		Brokers:               s.brokers,
		ConsumerGroup:         s.group,
		Unmarshaler:           s.config.Unmarshaler,
		OverwriteSaramaConfig: client,
		Tracer:                tracer,
	}
}

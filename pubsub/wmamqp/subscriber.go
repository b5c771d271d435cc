package wmamqp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/hold/graceful"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/observe"
)

// SubscriberConfig configures a Subscriber. The zero value is safe.
type SubscriberConfig struct {
	// AMQP is what watermill-amqp's subscriber takes. A DefaultMarshaler is replaced by Marshaler; any other becomes
	// its Inner. Consume.NoRequeueOnNack is refused: a requeued message would be lost. Consume.Qos defaults to a
	// prefetch of 1; as messages are handled one after the other, all that were fetched wait for the broker's
	// consumer_timeout. What is missing is as in amqp.NewDurableQueueConfig: durable queues named like their topics, on
	// the default exchange.
	AMQP amqp.Config
	// InFlight is the number of messages of a queue that are delivered before the first of them is settled. Each has a
	// channel of its own with a prefetch of 1. They have no order without Key, and each channel counts its own nacks in
	// a row. Set it for retry stages. It excludes another prefetch and Consume.Exclusive. With a single active consumer
	// and no Key it has no effect. Subscribe returns an error if the connection has too few channels. Default: 1; at
	// most 100.
	InFlight int
	// Key returns the key of a message: of its metadata, or of its payload. With it, InFlight messages of a queue are
	// handled at the same time, never two of one key, and those of a key in the order of the queue. "" is no key, and
	// no order. The queue must have a single active consumer, which AMQP.Queue.Arguments say. A nacked message is
	// delivered again in process, and holds up its own key alone. If Key panics, the queue waits, and the log says so.
	// Key is refused with InFlight 1, with priorities, and with a delivery limit. spillway.Config.Ordered needs it.
	// Default: none, and no order.
	Key func(*message.Message) string
	// MaxPlacing is the number of failed messages of a queue that are placed while the next ones are handled: published
	// to a retry stage, or as a dead letter. At this number, or at 16 MiB of payloads, the subscriber waits. Each of
	// them stays unacked until its placement is confirmed, so after a crash the broker delivers it again. While they
	// take the whole prefetch, the subscriber asks for each further message with basic.get. 10,000 at most. A negative
	// value means none: the next message waits for the confirm. Default: 100. With InFlight above 1 or
	// Consume.Exclusive it means nothing.
	MaxPlacing int
	// MaxHold is how long a message is held while something that its handler needs is unavailable. Then it is requeued,
	// uncounted by Spillway, but counted by a quorum queue. It must be less than the broker's consumer_timeout, 30
	// minutes by default, by more than a handler takes. A higher MaxHold gives messages back less often. Default: 15
	// minutes.
	MaxHold time.Duration
	// Shared: Logger receives the events of the connection.
	observe.Shared

	// What is below is the constant of the same name, and something else in tests.
	consumersLook                            time.Duration
	maxPlacingBytes                          int
	nackBackoff, maxNackBackoff, settleGrace time.Duration
	standsBy                                 time.Duration
}

// maxInFlight leaves room for subscriptions of many queues on one connection, which has 2047 channels by default.
const maxInFlight = 100

const (
	// maxPlacing bounds what a crash delivers again.
	maxPlacing = 10_000
	// maxPlacingBytes bounds the payloads of the messages of a queue that are placed at a time.
	maxPlacingBytes = 16 << 20
	// nackBackoff is the wait before a nacked message is requeued by the broker, which delivers it again at once. It
	// doubles with every nack in a row on one channel, up to maxNackBackoff. Longer waits are for retry stages.
	nackBackoff    = 100 * time.Millisecond
	maxNackBackoff = 5 * time.Second
	// settleGrace is how long a handler may take to ack after its message's context ended.
	settleGrace = time.Second
)

func (c *SubscriberConfig) setDefaults() {
	c.settleGrace, c.standsBy = cmp.Or(c.settleGrace, settleGrace), cmp.Or(c.standsBy, standsBy)
	c.consumersLook = cmp.Or(c.consumersLook, consumersLook)
	c.nackBackoff = cmp.Or(c.nackBackoff, nackBackoff)
	c.maxNackBackoff = cmp.Or(c.maxNackBackoff, max(maxNackBackoff, c.nackBackoff))
	c.MaxHold = cmp.Or(c.MaxHold, 15*time.Minute)
	c.InFlight = cmp.Or(c.InFlight, 1)
	c.MaxPlacing = cmp.Or(c.MaxPlacing, 100)
	if c.InFlight > 1 || c.AMQP.Consume.Exclusive {
		c.MaxPlacing = -1
	}
	c.maxPlacingBytes = cmp.Or(c.maxPlacingBytes, maxPlacingBytes)
	c.Logger = logging.Wrap(c.Logger, nil)
	if c.AMQP.Consume.Qos.PrefetchCount == 0 {
		c.AMQP.Consume.Qos.PrefetchCount = 1
	}
	setAMQPDefaults(&c.AMQP)
	switch m := c.AMQP.Marshaler.(type) {
	case Marshaler, *Marshaler:
	case amqp.DefaultMarshaler:
		c.AMQP.Marshaler = Marshaler{IDHeader: m.MessageUUIDHeaderKey}
	default:
		c.AMQP.Marshaler = Marshaler{Inner: m}
	}
}

func (c *SubscriberConfig) validate() error {
	if c.AMQP.Consume.NoRequeueOnNack {
		return errors.New("wmamqp: SubscriberConfig.AMQP.Consume.NoRequeueOnNack: a nacked message would be lost; leave it false")
	}
	if c.InFlight < 1 || c.InFlight > maxInFlight {
		return fmt.Errorf("wmamqp: SubscriberConfig.InFlight is %d: it must be 1 to %d messages of a queue", c.InFlight,
			maxInFlight)
	}
	if prefetch := c.AMQP.Consume.Qos.PrefetchCount; c.InFlight > 1 && prefetch > 1 {
		return fmt.Errorf("wmamqp: SubscriberConfig.InFlight is %d with AMQP.Consume.Qos.PrefetchCount %d: each channel of "+
			"those fetches one message; leave one of them out", c.InFlight, prefetch)
	}
	if c.InFlight > 1 && c.AMQP.Consume.Exclusive {
		return fmt.Errorf("wmamqp: SubscriberConfig.InFlight is %d with AMQP.Consume.Exclusive, which allows one channel "+
			"to consume: leave one of them out", c.InFlight)
	}
	if err := c.validateKey(); err != nil {
		return err
	}
	if c.MaxPlacing > maxPlacing {
		return fmt.Errorf("wmamqp: SubscriberConfig.MaxPlacing is %d: it must be at most %d messages of a queue",
			c.MaxPlacing, maxPlacing)
	}
	if c.MaxHold < 0 {
		return fmt.Errorf("wmamqp: SubscriberConfig.MaxHold is %s: it must not be negative; leave it out for 15 minutes",
			c.MaxHold)
	}
	return nil
}

// Subscriber is watermill-amqp's subscriber with messages whose context ends: when their channel or connection is lost,
// at Close, and when the context of Subscribe ends. It is safe for concurrent use.
type Subscriber struct {
	config SubscriberConfig
	conn   *connection
	given  requeues

	mu     sync.Mutex
	closed bool
	stops  map[*subscription]context.CancelFunc
	active sync.WaitGroup

	closeOnce sync.Once
	closeErr  error
}

var _ message.Subscriber = (*Subscriber)(nil)

// NewSubscriber connects to the broker at uri and returns a Subscriber. uri may have several nodes of a cluster, as in
// amqp://user:password@a:5672,b:5672/. They are tried in this order, and once more from the next one on when a
// connection is lost, until one answers. User, virtual host, and TLS settings are the same for all, and with amqps each
// node is known by its own name. An error names the field of config that is
// wrong or could lose messages, or says why there is no connection.
func NewSubscriber(uri string, config SubscriberConfig) (*Subscriber, error) {
	if err := setURI(&config.AMQP, uri); err != nil {
		return nil, err
	}
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	conn, err := connect(config.AMQP.Connection, 10*time.Second, config.Logger)
	if err != nil {
		return nil, err
	}
	return &Subscriber{config: config, conn: conn, given: newRequeues(),
		stops: make(map[*subscription]context.CancelFunc)}, nil
}

// ErrClosed is returned by a Subscriber or Publisher after Close.
var ErrClosed = errors.New("wmamqp: closed")

// Subscribe declares the queue of topic and consumes it. An existing queue with other arguments is used as it is.
// Messages are delivered one after the other, the next after the one before is settled, or InFlight of them. A lost
// connection is dialled again. The returned channel is closed after Close and when ctx ends.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	sub := &subscription{config: &s.config, queue: s.config.AMQP.Queue.GenerateName(topic),
		out: make(chan *message.Message)}
	if s.config.Key != nil {
		sub.ordering = sequence.Take(ctx)
	}
	sub.drain = graceful.Begin(hold.WithMaxHold(ctx, s.config.MaxHold))
	sub.ctx = sub.drain.Taking
	if err := s.enter(sub); err != nil {
		sub.drain.End()
		return nil, err
	}
	if err := s.open(sub, topic); err != nil {
		sub.drain.End()
		sub.run(nil) // ends what has begun
		s.leave(sub)
		return nil, err
	}
	go func() {
		defer s.leave(sub)
		sub.run(s.conn)
	}()
	return sub.out, nil
}

// enter registers a subscription, which Close ends and waits for.
func (s *Subscriber) enter(sub *subscription) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.active.Add(1)
	s.stops[sub] = sub.drain.Stop
	return nil
}

func (s *Subscriber) leave(sub *subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.stops, sub)
	s.active.Done()
}

// Backlog returns how many messages are ready in the queue of topic. Use it as redrive.DrainTopicConfig.Backlog.
// Messages that a consumer holds are not counted. A missing queue is an error that names it.
func (s *Subscriber) Backlog(ctx context.Context, topic string) (int, error) {
	conn, err := s.conn.open()
	if err != nil {
		return 0, err
	}
	return backlog(ctx, conn, s.config.AMQP.Queue.GenerateName(topic))
}

// RedeliveryTime returns twice SubscriberConfig.MaxHold, which is to stand for the broker's consumer_timeout: 30
// minutes by default.
func (s *Subscriber) RedeliveryTime() time.Duration { return 2 * s.config.MaxHold }

// Close takes no more messages, and lets busy handlers finish, for 5 s or spillway.Config.DrainTimeout. Then it ends
// the contexts of their messages, waits one second more, and requeues messages that are not settled. So a message is
// not redelivered while a handler that obeys its context still runs. An ack in that time reaches the broker. Close
// returns within 4 s after the handlers' time, whatever the peer does. It may be called again.
func (s *Subscriber) Close() error {
	s.closeOnce.Do(func() { s.closeErr = s.close() })
	return s.closeErr
}

func (s *Subscriber) close() error {
	s.mu.Lock()
	s.closed = true
	drain := time.Duration(0)
	for sub, stop := range s.stops {
		drain = max(drain, sub.drain.Timeout)
		stop()
	}
	s.mu.Unlock()
	left, stop := newLimits(drain + closeWait - forceWait + s.config.settleGrace)
	defer stop()
	ended := make(chan struct{})
	go func() { s.active.Wait(); close(ended) }()
	within(left.orderly, ended)
	err := s.conn.close(left)
	if !within(left.all, ended) {
		err = errors.Join(err, errors.New("wmamqp: a subscription did not end: it ends with its connection"))
	}
	return err
}

package wmamqp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
)

// publisherChannels is the most channels of a publisher. Each has one message at a time, and is opened when the first
// message finds no other one free.
const publisherChannels = 64

// PublisherConfig configures a Publisher. The zero value is safe.
type PublisherConfig struct {
	// AMQP is what watermill-amqp's publisher takes: the exchange and routing key of a topic, how messages are written,
	// TLS. Confirms and mandatory are always on; the pool size is not used. A DefaultMarshaler is replaced by
	// Marshaler, unless it has a PostprocessPublishing. What is missing is as in amqp.NewDurableQueueConfig: the
	// default exchange, a routing key named like the topic, and a durable queue of that name. Dead-letter queues that
	// the publisher declares are quorum queues, unless Queue.Arguments has another x-queue-type. InitializeTopics and
	// subscribers declare exchanges, and Publish does not.
	AMQP amqp.Config
	// ConfirmTimeout bounds the publication of a message: waiting for a channel, opening it, and the broker's confirm.
	// Raise it if the broker's disks are slow: a letter whose confirm comes later is published twice.
	// Default: 10 s.
	ConfirmTimeout time.Duration
	// AllowLossyTopics makes InitializeTopics accept queues that lose confirmed letters, by an argument such as
	// x-message-ttl or x-max-length. Default: false: such a queue is an error of InitializeTopics, and so of the
	// router's start.
	AllowLossyTopics bool
	// Shared: Logger receives the events of the connection.
	observe.Shared

	channels int // publisherChannels, and less in tests
}

func (c *PublisherConfig) setDefaults() {
	c.channels = cmp.Or(c.channels, publisherChannels)
	c.ConfirmTimeout = cmp.Or(c.ConfirmTimeout, 10*time.Second)
	c.Logger = logging.Wrap(c.Logger, nil)
	setAMQPDefaults(&c.AMQP)
	if d, ok := c.AMQP.Marshaler.(amqp.DefaultMarshaler); ok && d.PostprocessPublishing == nil {
		c.AMQP.Marshaler = Marshaler{IDHeader: d.MessageUUIDHeaderKey}
	}
}

func (c *PublisherConfig) validate() error {
	if c.ConfirmTimeout < 0 {
		return fmt.Errorf("wmamqp: PublisherConfig.ConfirmTimeout is %s: it must not be negative; leave it out for 10 s",
			c.ConfirmTimeout)
	}
	if c.AMQP.Publish.Transactional {
		return errors.New("wmamqp: PublisherConfig.AMQP.Publish.Transactional: a channel with confirms takes no " +
			"transactions; leave it false")
	}
	if c.AMQP.Publish.Immediate {
		return errors.New("wmamqp: PublisherConfig.AMQP.Publish.Immediate: RabbitMQ closes the connection; leave it false")
	}
	return nil
}

// Publisher publishes to RabbitMQ and returns when the broker has confirmed that the message is in a queue. It is safe
// for concurrent use.
type Publisher struct {
	config     PublisherConfig
	conn       *connection
	unanswered unanswered
	free       chan *channel // open, and no message on it
	unopened   chan struct{} // for each channel that may be opened beside

	unavailable sync.WaitGroup

	closing   chan struct{}
	closeOnce sync.Once
	closeErr  error
}

var (
	_ message.Publisher  = (*Publisher)(nil)
	_ poison.Initializer = (*Publisher)(nil)
)

// NewPublisher connects to the broker at uri, which may have several nodes as that of NewSubscriber, and returns a
// Publisher. An error names the field of config that is wrong or could lose messages, or says why there is no
// connection. Close the Publisher after the last router that uses it.
func NewPublisher(uri string, config PublisherConfig) (*Publisher, error) {
	if err := setURI(&config.AMQP, uri); err != nil {
		return nil, err
	}
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	conn, err := connect(config.AMQP.Connection, config.ConfirmTimeout, config.Logger)
	if err != nil {
		return nil, err
	}
	p := &Publisher{
		config: config, conn: conn, free: make(chan *channel, config.channels),
		unopened: make(chan struct{}, config.channels),
		closing:  make(chan struct{}),
	}
	for range config.channels {
		p.unopened <- struct{}{}
	}
	return p, nil
}

// Publish returns nil when the broker has confirmed every message, which it does after a queue has stored it. It stops
// at the first failure. The error says why: no queue is bound, the broker nacked the message, it is too large
// (classify.ErrTooLarge), it can never be accepted because of its content (classify.ErrRefused), there was no confirm
// in time, or the connection was lost. After the last two the message may have arrived.
//
// Publish writes no expiration, user id, CC or BCC into a letter, that is a message with poison's keys of a failure or
// a stage, whatever the marshaler does. It returns within ConfirmTimeout for each message, or twice that if the peer
// stopped reading.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	to := address{exchange: p.config.AMQP.Exchange.GenerateName(topic),
		key: p.config.AMQP.Publish.GenerateRoutingKey(topic)}
	if len(to.exchange) > maxShort || len(to.key) > maxShort {
		return fmt.Errorf("wmamqp: exchange %.40q with routing key %.40q…: AMQP's names have at most %d bytes",
			to.exchange,
			to.key, maxShort)
	}
	for _, msg := range messages {
		var publishing amqp091.Publishing
		err := safecall.Call("wmamqp: marshaler", func() (err error) {
			publishing, err = p.config.AMQP.Marshaler.Marshal(msg)
			return err
		})
		if err == nil {
			if isLetter(msg) {
				forLetter(&publishing)
			}
			err = p.publish(to, &publishing)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

type address struct{ exchange, key string }

func (p *Publisher) publish(to address, publishing *amqp091.Publishing) error {
	ctx, cancel := context.WithTimeout(context.Background(), p.config.ConfirmTimeout)
	defer cancel()
	err := p.publishOn(ctx, to, publishing)
	p.heard(err == nil || ctx.Err() == nil)
	return err
}

func (p *Publisher) publishOn(ctx context.Context, to address, publishing *amqp091.Publishing) error {
	c, err := p.take(ctx.Done())
	if err != nil {
		return err
	}
	if c, err = p.ready(c, ctx.Done()); err != nil {
		return err
	}
	if err := checkSize(publishing, c.frameMax); err != nil {
		p.free <- c
		return err
	}
	err, healthy := c.publish(to, publishing, ctx.Done(), p.config.ConfirmTimeout)
	if healthy {
		p.free <- c
		return p.whyReturned(ctx, to, err)
	}
	p.discard(c)
	return err
}

// Close waits for the messages that are being published and closes the connection. It returns within 4 s, whatever the
// peer does. For a message that is not confirmed after 3 s Publish returns an error, and it
// may have arrived. Close may be called again. Afterwards Publish returns ErrClosed.
func (p *Publisher) Close() error {
	p.closeOnce.Do(func() { p.closeErr = p.close() })
	return p.closeErr
}

func (p *Publisher) close() error {
	close(p.closing)
	left, stop := newLimits(closeWait)
	defer stop()
collecting:
	for range p.config.channels {
		select {
		case <-p.free: // nothing is published on it
		case <-p.unopened:
		case <-left.orderly.Done():
			break collecting
		}
	}
	err := p.conn.close(left) // with its channels
	gone := make(chan struct{})
	go func() { p.unavailable.Wait(); close(gone) }()
	if !within(left.all, gone) {
		err = errors.Join(err, errors.New("wmamqp: a channel did not close: it ends with its connection"))
	}
	return err
}

// unansweredFor is how many times ConfirmTimeout a connection may answer no message.
const unansweredFor = 3

// unanswered is since when the broker answers no message, in nanoseconds; 0 while it does.
type unanswered struct{ since atomic.Int64 }

// heard notes whether the broker answered a message, with a confirm or an error. A node that hangs or has lost its
// cluster can go on with heartbeats, and answer nothing else: then its connection is closed, and the next node is
// dialled.
func (p *Publisher) heard(answered bool) {
	since := p.unanswered.since.Load()
	if answered {
		if since != 0 {
			p.unanswered.since.Store(0)
		}
		return
	}
	now := time.Now()
	if since == 0 {
		p.unanswered.since.CompareAndSwap(0, now.Add(-p.config.ConfirmTimeout).UnixNano())
		return
	}
	long := now.Sub(time.Unix(0, since)) >= unansweredFor*p.config.ConfirmTimeout
	if long && p.unanswered.since.CompareAndSwap(since, 0) {
		p.conn.sockets.cut()
	}
}

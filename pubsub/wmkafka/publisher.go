package wmkafka

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/poison"
)

// PublisherConfig configures a Publisher. The zero value is safe.
type PublisherConfig struct {
	// Marshaler writes records. Another one than Marshaler loses their keys. Default: Marshaler{}.
	Marshaler kafka.Marshaler
	// Sarama configures the client. It is copied. Default: SaramaPublisherConfig().
	Sarama *sarama.Config
	// Tracer is watermill-kafka's, kafka.NewOTELSaramaTracer() for one. Default: none.
	Tracer kafka.SaramaTracer
	// MaxMessageBytes is the largest record that is sent, letters aside that fit when they are compressed, as messages may have
	// come. InitializeTopicsFor asks for as much as its source takes and
	// 64 KiB more. Default: Sarama.Producer.MaxMessageBytes, which in SaramaPublisherConfig is what a topic with Kafka's
	// defaults asks for.
	MaxMessageBytes int
	// ReplicationFactor is that of topics which are created. Default: their source's, or where there is none 3, or as many
	// as there are brokers.
	ReplicationFactor int16
	// ProducerPerTopic is for a publisher to retry stages, and for others to which several handlers publish at the same time:
	// a producer, with a connection, of its own for each topic, opened at the first message to it. An idempotent producer has
	// one request in flight at a time, and a message waits for the one of another topic. An error in opening is the message's,
	// and the next one tries again. Topics beyond the first 256 share the one producer that all have otherwise. Default:
	// one for all.
	ProducerPerTopic bool
	// InFlight is the number of messages of one Publish call that are sent before the first is confirmed. It is for a
	// publisher that gets many messages at once, as that of a delay.Relay does. With more than 1, messages behind a refused
	// message may be published; the error says how many were. Their order stays. Default: 1.
	InFlight int
	// AllowLossyTopics lets InitializeTopicsFor pass existing topics that lose letters which they confirmed, by retention or
	// compaction, or that refuse the largest letter: what is wrong with them is logged as an error. Default: it is an error of
	// InitializeTopicsFor, and so of the router's start.
	AllowLossyTopics bool
	// TopicTimeout is how long to wait until a created topic has its leaders. Default: 10 s.
	TopicTimeout time.Duration
	// Logger is called with what AllowLossyTopics accepts, and with what is created. Default: none.
	Logger watermill.LoggerAdapter
}

func (c *PublisherConfig) setDefaults() {
	if c.Marshaler == nil {
		c.Marshaler = Marshaler{}
	}
	if c.Sarama == nil {
		c.Sarama = SaramaPublisherConfig()
	}
	own := *c.Sarama
	c.Sarama = &own
	if c.MaxMessageBytes == 0 {
		c.MaxMessageBytes = own.Producer.MaxMessageBytes
	}
	own.Producer.MaxMessageBytes = c.MaxMessageBytes
	if c.InFlight == 0 {
		c.InFlight = 1
	}
	if c.TopicTimeout == 0 {
		c.TopicTimeout = 10 * time.Second
	}
	if c.Logger == nil {
		c.Logger = watermill.NopLogger{}
	}
}

func (c *PublisherConfig) validate() error {
	switch {
	case c.MaxMessageBytes < 0 || c.ReplicationFactor < 0 || c.TopicTimeout < 0:
		return fmt.Errorf("wmkafka: PublisherConfig.MaxMessageBytes (%d), ReplicationFactor (%d) and TopicTimeout (%s) must not be negative",
			c.MaxMessageBytes, c.ReplicationFactor, c.TopicTimeout)
	case c.InFlight < 1 || c.InFlight > maxPublishing:
		return fmt.Errorf("wmkafka: PublisherConfig.InFlight is %d: it must be 1 to %d", c.InFlight, maxPublishing)
	case c.Sarama.Producer.RequiredAcks != sarama.WaitForAll:
		return errors.New("wmkafka: PublisherConfig.Sarama.Producer.RequiredAcks is not WaitForAll: a letter that only its leader has, or nobody, " +
			"would be lost after its source was acked")
	case c.Sarama.Producer.Transaction.ID != "":
		return errors.New("wmkafka: PublisherConfig.Sarama.Producer.Transaction.ID is set: nobody would commit the transaction; use a producer without")
	}
	if err := c.Sarama.Validate(); err != nil {
		return fmt.Errorf("wmkafka: PublisherConfig.Sarama: %w", err)
	}
	return nil
}

// Publisher publishes to Kafka and returns when the brokers have confirmed. With SaramaPublisherConfig that takes 30 s at
// the most for a message, or twice that for one refused for its size, and with ProducerPerTopic the first message to a topic
// up to 20 s more where no broker answers. It is a poison.SourceInitializer: topics for dead letters are created as they
// should be. It is safe for concurrent use.
type Publisher struct {
	brokers   []string
	config    PublisherConfig
	producers *producers
	// sending is held by all who send, and alone by who must know whether it is his own message that is too large.
	sending sync.RWMutex
	closed  atomic.Bool
}

var (
	_ message.Publisher        = (*Publisher)(nil)
	_ poison.Initializer       = (*Publisher)(nil)
	_ poison.SourceInitializer = (*Publisher)(nil)
)

// NewPublisher connects to the cluster and returns a Publisher. brokers are the addresses of some of its brokers. An
// error names the field of config that is wrong or could lose messages, or says why no broker answered.
func NewPublisher(brokers []string, config PublisherConfig) (*Publisher, error) {
	if len(brokers) == 0 {
		return nil, errNoBrokers
	}
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	p := &Publisher{brokers: brokers, config: config}
	var err error
	if p.producers, err = newProducers(brokers, &p.config); err != nil {
		return nil, fmt.Errorf("wmkafka: %w", err)
	}
	return p, nil
}

// Publish publishes the messages one after the other, or PublisherConfig.InFlight at a time, and stops at the first that is
// refused; the error tells how many were published. A refusal for size wraps poison.ErrTooLarge, and is that of the message
// itself: one that was refused because it travelled with another is sent again. It is marked as permanent. After Close it
// returns ErrClosed.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	if p.config.InFlight > 1 && len(messages) > 1 {
		return p.publishMany(topic, messages)
	}
	for i, msg := range messages {
		if err := p.publish(topic, msg); err != nil {
			return fmt.Errorf("wmkafka: %s: %w", describe(topic, i+1, len(messages), i), err)
		}
	}
	return nil
}

func (p *Publisher) publish(topic string, msg *message.Message) error {
	if msg == nil {
		return errNilMessage
	}
	p.sending.RLock()
	err := p.send(topic, msg)
	p.sending.RUnlock()
	if refusedForBatch(err) {
		p.sending.Lock()
		err = p.send(topic, msg)
		p.sending.Unlock()
	}
	if isTooLarge(err) && chain.IsReturning(msg.Context()) {
		err = p.sendPacked(topic, msg)
	}
	return judged(err)
}

var errNilMessage = errors.New("the message is nil")

// judged marks a refusal for size, which will be one the next time too. So is a request that the client cannot encode.
func judged(err error) error {
	if isTooLarge(err) {
		return classify.Permanent(fmt.Errorf("%w: %w", poison.ErrTooLarge, err))
	}
	return err
}

func (p *Publisher) send(topic string, msg *message.Message) error {
	if p.closed.Load() {
		return ErrClosed
	}
	producer, err := p.producers.of(topic)
	if err != nil {
		return err
	}
	return producer.Publish(topic, msg)
}

// sendPacked is for a message that came from Kafka, and so fits, and is larger for our producer than it was for its own: one
// that came compressed, or has many headers, of each of which the client overrates the size by 8 bytes. The producer for
// such compresses as well as it can, and leaves the judgement to the broker, which counts what is compressed.
func (p *Publisher) sendPacked(topic string, msg *message.Message) error {
	p.sending.RLock()
	defer p.sending.RUnlock()
	if p.closed.Load() {
		return ErrClosed
	}
	producer, err := p.producers.packing()
	if err != nil {
		return err
	}
	return producer.Publish(topic, msg)
}

// Close waits for messages that are being sent and closes the connections. It may be called again.
func (p *Publisher) Close() error {
	if p.closed.Swap(true) {
		return nil
	}
	p.sending.Lock()
	defer p.sending.Unlock()
	if err := p.producers.close(); err != nil {
		return fmt.Errorf("wmkafka: close: %w", err)
	}
	return nil
}

// refusedForBatch tells whether the broker refused all that was sent together, where one may have been too large.
func refusedForBatch(err error) bool {
	return errors.Is(err, sarama.ErrMessageSizeTooLarge) || errors.Is(err, sarama.ErrMessageSetSizeTooLarge)
}

func isTooLarge(err error) bool {
	if refusedForBatch(err) {
		return true
	}
	var refusal sarama.ConfigurationError // the client's own
	if errors.As(err, &refusal) {
		return strings.Contains(string(refusal), "larger than")
	}
	var encoding sarama.PacketEncodingError // of a request over sarama.MaxRequestSize
	return errors.As(err, &encoding) && strings.Contains(encoding.Info, "invalid request size")
}

// describe names a message in an error.
func describe(topic string, n, of, published int) string {
	if of == 1 {
		return fmt.Sprintf("publish to %q", topic)
	}
	return fmt.Sprintf("publish to %q: message %d of %d, of which %d were published", topic, n, of, published)
}

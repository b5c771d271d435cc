package wmkafka

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
)

// PublisherConfig configures a Publisher. The zero value is safe.
type PublisherConfig struct {
	// Marshaler writes records. A marshaler other than Marshaler loses their keys. Default: Marshaler{}.
	Marshaler kafka.Marshaler
	// Sarama changes the client's configuration: security, a client id, a proxy, Producer.Partitioner. It is called
	// once, with a configuration of the client's own that waits for all replicas, which is required, and gives up
	// within 30 s. Producer.MaxMessageBytes is the largest record that is sent. By default it suits a topic with
	// Kafka's defaults: InitializeTopicsFor requires the limit of its source and 64 KiB more. A letter of a message
	// that came compressed may be larger before compression. Default: no change.
	Sarama func(*sarama.Config)
	// InFlight is the number of messages of one Publish call that are sent before the first is confirmed. It is for a
	// publisher that gets many messages at once, as that of stages with a delay.Store does. With more than 1, messages
	// behind a refused message may be published; the error says how many were. Their order stays. Default: 1.
	InFlight int
	// AllowLossyTopics makes InitializeTopicsFor accept existing topics that lose confirmed letters, by retention or
	// compaction, or that refuse the largest letter. What is wrong is logged as an error. Default: false: such a topic
	// is an error of InitializeTopicsFor, and so of the router's start.
	AllowLossyTopics bool
	// Shared: Logger receives a line for each created topic and for each topic that AllowLossyTopics accepts.
	observe.Shared

	client       *sarama.Config // which Sarama has changed
	linger       time.Duration  // of NewStages: how long a message that is placed aside waits for others
	topicTimeout time.Duration  // topicTimeout, and less in tests
	sarama       string         // its version, and others in tests
}

func (c *PublisherConfig) setDefaults() {
	if c.Marshaler == nil {
		c.Marshaler = Marshaler{}
	}
	c.client = publisherDefaults()
	if c.Sarama != nil {
		c.Sarama(c.client)
	}
	flush := &c.client.Producer.Flush
	if flush.Frequency > 0 || flush.Bytes > 0 || flush.Messages > 0 {
		c.linger = 0
	} else {
		flush.Frequency = c.linger
	}
	c.InFlight = cmp.Or(c.InFlight, 1)
	c.topicTimeout = cmp.Or(c.topicTimeout, topicTimeout)
	if c.sarama == "" {
		c.sarama = saramaVersion()
	}
	c.Logger = logging.Wrap(c.Logger, nil)
}

func (c *PublisherConfig) validate() error {
	switch {
	case c.InFlight < 1 || c.InFlight > maxPublishing:
		return fmt.Errorf("wmkafka: PublisherConfig.InFlight is %d: it must be 1 to %d", c.InFlight, maxPublishing)
	case c.client.Producer.RequiredAcks != sarama.WaitForAll:
		return errors.New("wmkafka: PublisherConfig.Sarama.Producer.RequiredAcks is not WaitForAll: a letter that no " +
			"replica has yet would be lost after its source was acked")
	case c.client.Producer.Idempotent && !idempotentKeeps(c.sarama):
		return fmt.Errorf("wmkafka: PublisherConfig.Sarama.Producer.Idempotent is set: after an error sarama %s confirms "+
			"records that are then nowhere; leave it false, or use sarama v1.61.1 or later", c.sarama)
	case c.client.Producer.Transaction.ID != "":
		return errors.New("wmkafka: PublisherConfig.Sarama.Producer.Transaction.ID is set: the transaction would never be " +
			"committed; leave it empty")
	}
	if err := c.client.Validate(); err != nil {
		return fmt.Errorf("wmkafka: PublisherConfig.Sarama: %w", err)
	}
	return nil
}

// topicTimeout is how long to wait until a created topic has its leaders, which takes the cluster far less.
const topicTimeout = 10 * time.Second

// Publisher publishes to Kafka and returns when the brokers have confirmed. Unless Sarama changes its time-outs, that
// takes at most 30 s for a message, or twice that for a message that is refused for its size. It is a poison.Initializer
// and creates dead-letter topics. It is safe for concurrent use.
type Publisher struct {
	brokers   []string
	config    PublisherConfig
	producers producers
	stages    string // the consumer group of all stages, if this is NewStages's
	// sending is held shared by every send, and alone by a send that must find out whether its own message is too
	// large.
	sending    sync.RWMutex
	closed     atomic.Bool
	denials    denials
	sourceWait time.Duration
}

var (
	_ message.Publisher  = (*Publisher)(nil)
	_ poison.Initializer = (*Publisher)(nil)
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
	p := &Publisher{brokers: brokers, config: config, sourceWait: sourceWait}
	p.producers.brokers, p.producers.config = brokers, &p.config
	if _, err := p.producers.of(true); err != nil {
		return nil, fmt.Errorf("wmkafka: %w", err)
	}
	return p, nil
}

// Publish publishes the messages one after the other, or PublisherConfig.InFlight at a time, and stops at the first
// refusal. The error says how many were published. A refusal for size wraps classify.ErrTooLarge and is marked
// permanent. A message that was refused because it was sent with a larger one is sent again. After Close, Publish
// returns ErrClosed.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	err := p.publishAll(topic, messages)
	p.denials.note(p.config.Logger, topic, err)
	return err
}

func (p *Publisher) publishAll(topic string, messages []*message.Message) error {
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
	if err == nil {
		return nil
	}
	if isTooLarge(err) && chain.IsReturning(msg.Context()) {
		err = p.sendPacked(topic, msg)
	}
	return judged(err)
}

var errNilMessage = errors.New("the message is nil")

// judged marks a refusal for size, which will be one the next time too. So is a request that the client cannot encode.
func judged(err error) error {
	switch {
	case isTooLarge(err):
		return classify.Permanent(fmt.Errorf("%w: %w", classify.ErrTooLarge, err))
	case isDenied(err):
		return fmt.Errorf("%w: %s", err, deniedRemedy)
	case errors.Is(err, sarama.ErrUnknownTopicOrPartition):
		return fmt.Errorf("%w: create the topic with Kafka's tools; a Publisher creates those of letters and stages alone", err)
	}
	return err
}

func (p *Publisher) send(topic string, msg *message.Message) error {
	if p.closed.Load() {
		return ErrClosed
	}
	producer, err := p.producers.of(placing.IsAside(msg.Context()))
	if err != nil {
		return err
	}
	return p.write(producer, topic, msg)
}

// sendPacked is for a message that came from Kafka, and so fits, and is larger for our producer than it was for its
// own: one that came compressed, or has many headers, of each of which the client overrates the size by 8 bytes. The
// producer for such compresses as well as it can, and leaves the judgement to the broker, which counts what is
// compressed.
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
	return p.write(producer, topic, msg)
}

func (p *Publisher) write(by *producer, topic string, msg *message.Message) error {
	record, err := p.config.Marshaler.Marshal(topic, msg)
	if err != nil {
		return fmt.Errorf("cannot marshal message %s: %w", msg.UUID, err)
	}
	if _, _, err = by.sync.SendMessage(record); err != nil {
		return fmt.Errorf("cannot produce message %s: %w", msg.UUID, err)
	}
	return nil
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

// refusedForBatch reports whether the broker refused a batch, in which one message may have been too large.
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
	return fmt.Sprintf("publish to %q: message %d of %d failed, %d were published", topic, n, of, published)
}

// maxPublishing bounds what a producer holds of one Publish.
const maxPublishing = 1000

// publishMany publishes messages InFlight at a time, and stops after those among which one was refused.
func (p *Publisher) publishMany(topic string, messages []*message.Message) error {
	for first := 0; first < len(messages); first += p.config.InFlight {
		some := messages[first:min(first+p.config.InFlight, len(messages))]
		if refused, published, err := p.publishSome(topic, some); err != nil {
			return fmt.Errorf("wmkafka: %s: %w", describe(topic, first+refused+1, len(messages), first+published), err)
		}
	}
	return nil
}

// publishSome publishes messages at once. With an error it returns the index of the first refused message, and how many
// were published.
func (p *Publisher) publishSome(topic string, messages []*message.Message) (refused, published int, err error) {
	records := make([]*sarama.ProducerMessage, len(messages))
	for i, msg := range messages {
		if msg == nil {
			return i, 0, errNilMessage
		}
		if records[i], err = p.config.Marshaler.Marshal(topic, msg); err != nil {
			return i, 0, fmt.Errorf("cannot marshal message %s: %w", msg.UUID, err)
		}
	}
	errs, err := p.sendSome(records)
	if err != nil {
		return 0, 0, err
	}
	// One that is too large takes those with it that went in the same request.
	alone := anyOf(errs, isTooLarge)
	for i, msg := range messages {
		own := errs[records[i]]
		if own != nil && alone {
			own = p.publish(topic, msg)
		}
		switch {
		case own == nil:
			published++
		case err == nil:
			refused, err = i, judged(own)
		}
	}
	return refused, published, err
}

func anyOf(errs map[*sarama.ProducerMessage]error, is func(error) bool) bool {
	for _, err := range errs {
		if is(err) {
			return true
		}
	}
	return false
}

// sendSome returns the errors of those that were refused.
func (p *Publisher) sendSome(
	records []*sarama.ProducerMessage) (map[*sarama.ProducerMessage]error, error) {
	p.sending.RLock()
	defer p.sending.RUnlock()
	if p.closed.Load() {
		return nil, ErrClosed
	}
	producer, err := p.producers.of(false)
	if err != nil {
		return nil, err
	}
	err = producer.sync.SendMessages(records)
	var several sarama.ProducerErrors
	if err == nil || !errors.As(err, &several) {
		return nil, err
	}
	errs := make(map[*sarama.ProducerMessage]error, len(several))
	for _, one := range several {
		errs[one.Msg] = one.Err
	}
	return errs, nil
}

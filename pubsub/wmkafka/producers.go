package wmkafka

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
)

// maxProducers bounds how many topics have a producer of their own: names of topics may come from messages, and each
// producer has connections and some ten goroutines.
const maxProducers = 256

// producers are one for all topics, and where that is configured, one for each topic that was published to.
type producers struct {
	brokers []string
	config  *PublisherConfig
	most    int // how many topics have their own

	used    atomic.Int64 // calls of of and packing
	shared  sync.Mutex
	common  atomic.Pointer[client] // nil while idle
	lock    sync.RWMutex
	byTopic map[string]*producer

	packs, hurries special
}

// special is a producer that is opened when the first message needs it.
type special struct {
	mu     sync.Mutex
	client *client // nil until then
}

func (s *special) of(p *producers, change func(*sarama.Config)) (*client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		return s.client, nil
	}
	config := *p.config.client
	change(&config)
	var err error
	s.client, err = p.open(&config)
	return s.client, err
}

func (s *special) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		return nil
	}
	open := s.client
	s.client = nil
	return open.stock.Close()
}

// producer is one that is being opened, or has been.
type producer struct {
	opened chan struct{}
	client *client // nil after an error
	err    error
}

// client is watermill-kafka's publisher, which sends one message at a time, and the producer in it, which can send
// many.
type client struct {
	stock    *kafka.Publisher
	producer sarama.SyncProducer
}

// finder is a tracer that finds the producer.
type finder struct {
	kafka.SaramaTracer // nil: a publisher calls no other method
	found              sarama.SyncProducer
}

// WrapSyncProducer keeps the producer.
func (f *finder) WrapSyncProducer(_ *sarama.Config, p sarama.SyncProducer) sarama.SyncProducer {
	f.found = p
	return p
}

func newProducers(brokers []string, config *PublisherConfig) (*producers, error) {
	p := &producers{brokers: brokers, config: config, byTopic: make(map[string]*producer)}
	if config.ProducerPerTopic {
		p.most = maxProducers
	}
	_, err := p.commonOne()
	return p, err
}

// commonOne returns the producer for all topics, which it opens if there is none.
func (p *producers) commonOne() (*client, error) {
	if common := p.common.Load(); common != nil {
		return common, nil
	}
	p.shared.Lock()
	defer p.shared.Unlock()
	if common := p.common.Load(); common != nil {
		return common, nil
	}
	common, err := p.open(p.config.client)
	if err == nil {
		p.common.Store(common)
	}
	return common, err
}

// packing returns the producer that sends records of any size, compressed. It is opened when the first needs it.
func (p *producers) packing() (*client, error) {
	p.used.Add(1)
	return p.packs.of(p, func(c *sarama.Config) {
		if p.config.linger > 0 {
			c.Producer.Flush.Frequency = 0
		}
		c.Producer.MaxMessageBytes = largestRequest
		if c.Producer.Compression = sarama.CompressionGZIP; c.Version.IsAtLeast(sarama.V2_1_0_0) {
			c.Producer.Compression = sarama.CompressionZSTD
		}
		c.Producer.CompressionLevel = bestCompression
	})
}

const (
	bestCompression = 9 // gzip's best, and the second best of zstd
	// largestRequest is the largest record that a request of the client has room for.
	largestRequest = 100<<20 - 16<<10
)

func (p *producers) open(config *sarama.Config) (*client, error) {
	tracer := &finder{}
	publisher, err := kafka.NewPublisher(kafka.PublisherConfig{
		Brokers:               p.brokers,
		Marshaler:             p.config.Marshaler,
		OverwriteSaramaConfig: config,
		Tracer:                tracer,
	}, p.config.Logger)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", strings.Join(p.brokers, ", "), err)
	}
	return &client{publisher, tracer.found}, nil
}

// of returns the topic's producer. Calls while it is being opened share the result, so that they do not wait for one
// attempt after the other. A call after a failure tries again. A message for which something waits does not linger.
func (p *producers) of(topic string, aside bool) (*client, error) {
	p.used.Add(1)
	if p.config.linger > 0 && !aside {
		return p.hurries.of(p, func(c *sarama.Config) { c.Producer.Flush.Frequency = 0 })
	}
	if p.most == 0 {
		return p.commonOne()
	}
	p.lock.RLock()
	own := p.byTopic[topic]
	p.lock.RUnlock()
	if own == nil {
		if own = p.begin(topic); own == nil {
			return p.commonOne()
		}
	}
	<-own.opened
	return own.client, own.err
}

// begin opens the topic's producer, or finds it, and returns nil for one topic too many.
func (p *producers) begin(topic string) *producer {
	p.lock.Lock()
	own := p.byTopic[topic]
	if own != nil || len(p.byTopic) >= p.most {
		p.lock.Unlock()
		return own
	}
	own = &producer{opened: make(chan struct{})}
	p.byTopic[topic] = own
	p.lock.Unlock()

	if own.client, own.err = p.open(p.config.client); own.err != nil {
		p.lock.Lock()
		delete(p.byTopic, topic)
		p.lock.Unlock()
	}
	close(own.opened)
	return own
}

// close closes all producers. It must not be called while messages are sent. Those that are needed later are opened
// again.
func (p *producers) close() error {
	var errs []error
	if common := p.common.Swap(nil); common != nil {
		errs = append(errs, common.stock.Close())
	}
	errs = append(errs, p.packs.close(), p.hurries.close())
	p.lock.Lock()
	defer p.lock.Unlock()
	for _, own := range p.byTopic {
		errs = append(errs, own.client.stock.Close())
	}
	clear(p.byTopic)
	return errors.Join(errs...)
}

// maxIdle is how long the publisher of NewStages keeps its connections and producers after the last message. The next
// message opens them again, which takes some round trips, or up to 20 s more if no broker answers.
const maxIdle = time.Minute

// idle closes the producers of a publisher that sends nothing. Sarama keeps two goroutines for each topic that was
// published to.
type idle struct {
	timer *time.Timer // nil if the producers are kept
	seen  int64       // what was used when the timer began
}

// start begins to watch.
func (i *idle) start(p *Publisher) {
	if p.config.maxIdle == 0 {
		return
	}
	p.sending.Lock()
	defer p.sending.Unlock()
	i.timer = time.AfterFunc(p.config.maxIdle, func() { i.look(p) })
}

// look closes the producers if none was used since the last look.
func (i *idle) look(p *Publisher) {
	used := p.producers.used.Load()
	if used != i.seen {
		i.seen = used
		i.again(p)
		return
	}
	p.sending.Lock()
	if !p.closed.Load() && p.producers.used.Load() == used {
		if err := p.producers.close(); err != nil {
			eventIdleNotClosed.Write(p.config.Logger, err, nil)
		}
	}
	p.sending.Unlock()
	i.again(p)
}

func (i *idle) again(p *Publisher) {
	p.sending.RLock()
	defer p.sending.RUnlock()
	if !p.closed.Load() {
		i.timer.Reset(p.config.maxIdle)
	}
}

// stop ends it, with the publisher, whose sending is locked.
func (i *idle) stop() {
	if i.timer != nil {
		i.timer.Stop()
	}
}

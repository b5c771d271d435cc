package wmkafka

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// producers are those of a publisher. Each is opened when the first message needs it.
type producers struct {
	brokers []string
	config  *PublisherConfig

	common, packs, hurries producer
}

// producer is one of sarama's.
type producer struct {
	mu   sync.Mutex
	sync sarama.SyncProducer // nil until it is opened

	failed time.Time // when it could not be opened
	err    error     // why
}

// open opens a producer, unless it is open. Calls meanwhile share the result. A call after a failure tries again.
func (p *producers) open(own *producer, change func(*sarama.Config)) (*producer, error) {
	begun := time.Now()
	own.mu.Lock()
	defer own.mu.Unlock()
	switch {
	case own.sync != nil:
		return own, nil
	case own.failed.After(begun):
		return nil, own.err
	}
	config := *p.config.client
	change(&config)
	opened, err := sarama.NewSyncProducer(p.brokers, &config)
	if err != nil {
		own.failed, own.err = time.Now(), fmt.Errorf("connect to %s: %w", strings.Join(p.brokers, ", "), err)
		return nil, own.err
	}
	own.sync = opened
	return own, nil
}

// of returns the producer for a message. One for which something waits does not linger.
func (p *producers) of(aside bool) (*producer, error) {
	if p.config.linger > 0 && !aside {
		return p.open(&p.hurries, func(c *sarama.Config) { c.Producer.Flush.Frequency = 0 })
	}
	return p.open(&p.common, func(*sarama.Config) {})
}

// packing returns the producer that sends records of any size, compressed.
func (p *producers) packing() (*producer, error) {
	return p.open(&p.packs, func(c *sarama.Config) {
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

// close closes the producers. It must not be called while messages are sent.
func (p *producers) close() error {
	var errs []error
	for _, own := range []*producer{&p.common, &p.packs, &p.hurries} {
		if own.sync != nil {
			errs = append(errs, own.sync.Close())
		}
	}
	return errors.Join(errs...)
}

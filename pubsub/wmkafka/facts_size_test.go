package wmkafka

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// together publishes a large message and small ones so that they travel in one batch, and returns the refusals.
func together(t *testing.T, topic string, pub message.Publisher) (small []error, large error) {
	t.Helper()
	var all sync.WaitGroup
	small = make([]error, 5)
	all.Go(func() { large = pub.Publish(topic, message.NewMessage("large", make([]byte, 1500<<10))) })
	for i := range small {
		all.Go(func() { small[i] = pub.Publish(topic, message.NewMessage("small", []byte("x"))) })
	}
	all.Wait()
	return small, large
}

func batching(config *sarama.Config) {
	config.Producer.Flush.Messages, config.Producer.Flush.Frequency = 6, 300*time.Millisecond
	config.Producer.MaxMessageBytes = 8 << 20
}

// Fact, decision 4: a refusal for size fails the small messages of the same batch.
func TestFactKafkaRefusesBatch(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	config := kafka.DefaultSaramaSyncPublisherConfig()
	batching(config)
	pub, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: c.brokers, OverwriteSaramaConfig: config}, nil)
	testkit.NoError(t, err)
	c.cleanup(pub.Close)
	if small, large := together(t, c.topic, pub); large == nil || errors.Join(small...) == nil {
		t.Errorf("large %v, small %v", large, small)
	}
}

// Decision 4, promise P4: ours refuses the large one alone, says that it is too large, and goes on.
func TestOnlyTheLargeIsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	pub := c.publisher(PublisherConfig{Sarama: batching})
	for range 2 {
		small, large := together(t, c.topic, pub)
		testkit.Check(t, errors.Is(large, classify.ErrTooLarge) && (*classify.Classifier)(nil).IsTooLarge(large),
			"large: %v", large)
		if err := errors.Join(small...); err != nil {
			t.Errorf("small: %v", err)
		}
	}
	if n := c.size(c.topic); n != 10 {
		t.Errorf("%d records", n)
	}
}

// tooLargeOutput handles two messages, the first of which produces 2 MiB, and returns how often it was handled and
// whether the second was.
func tooLargeOutput(c *cluster, pub message.Publisher, attach func(*message.Router), until func() bool) (runs *atomic.Int32, behind *atomic.Bool) {
	runs, behind = new(atomic.Int32), new(atomic.Bool)
	c.create("invoices-"+c.topic, 1, nil)
	c.produce(numbered(2)...)
	c.run(c.subscriber(SubscriberConfig{nackBackoff: 10 * time.Millisecond, maxNackBackoff: 10 * time.Millisecond}), renamed{pub, "invoices-" + c.topic}, attach,
		func(msg *message.Message) ([]*message.Message, error) {
			if msg.UUID != "id-0" {
				behind.Store(true)
				return nil, nil
			}
			runs.Add(1)
			return []*message.Message{message.NewMessage("", make([]byte, 2<<20))}, nil
		})
	c.eventually("the outcome is known", func() bool { return until() || runs.Load() >= 20 })
	return runs, behind
}

// renamed publishes to a topic of the test's own.
type renamed struct {
	message.Publisher
	topic string
}

func (r renamed) Publish(_ string, messages ...*message.Message) error {
	return r.Publisher.Publish(r.topic, messages...)
}

// Fact, feature D15: an output that is too large runs its handler again and again, and nothing behind it is handled.
func TestFactWatermillRepeatsTooLargeOutput(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	runs, behind := tooLargeOutput(c, c.publisher(PublisherConfig{}), func(*message.Router) {}, func() bool { return false })
	if runs.Load() < 20 || behind.Load() {
		t.Errorf("the handler ran %d times, the message behind was handled: %t", runs.Load(), behind.Load())
	}
}

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
func together(topic string, pub message.Publisher) (small, large error) {
	var all sync.WaitGroup
	refused := make([]error, 5)
	all.Go(func() { large = pub.Publish(topic, message.NewMessage("large", make([]byte, 1500<<10))) })
	for i := range refused {
		all.Go(func() { refused[i] = pub.Publish(topic, message.NewMessage("small", []byte("x"))) })
	}
	all.Wait()
	return errors.Join(refused...), large
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
	pub := testkit.Must(kafka.NewPublisher(kafka.PublisherConfig{Brokers: c.brokers, OverwriteSaramaConfig: config}, nil))
	c.cleanup(pub.Close)
	small, large := together(c.topic, pub)
	testkit.Check(t, large != nil && small != nil, "large %v, small %v", large, small)
}

// Decision 4, promise P4: ours refuses the large one alone, says that it is too large, and goes on.
func TestOnlyTheLargeIsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	pub := c.publisher(PublisherConfig{Sarama: batching})
	for range 2 {
		small, large := together(c.topic, pub)
		testkit.Check(t, errors.Is(large, classify.ErrTooLarge) && (*classify.Classifier)(nil).IsTooLarge(large),
			"large: %v", large)
		testkit.NoError(t, small)
	}
	testkit.Equal(t, "records", c.size(c.topic), 10)
}

// Fact, feature D15: an output that is too large runs its handler again and again, and nothing behind it is handled.
func TestFactWatermillRepeatsTooLargeOutput(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	invoices := "invoices-" + c.topic
	c.create(invoices, 1, nil)
	c.produce(numbered(2)...)
	var runs atomic.Int32
	sub := c.subscriber(SubscriberConfig{nackBackoff: 10 * time.Millisecond, maxNackBackoff: 10 * time.Millisecond})
	testkit.RunRouter(t, nil, func(router *message.Router) {
		router.AddHandler("billing", c.topic, sub, invoices, c.publisher(PublisherConfig{}),
			func(msg *message.Message) ([]*message.Message, error) {
				testkit.Equal(t, "handled", msg.UUID, "id-0")
				runs.Add(1)
				return []*message.Message{message.NewMessage("", make([]byte, 2<<20))}, nil
			})
	})
	c.eventually("the handler has run 20 times", func() bool { return runs.Load() >= 20 })
}

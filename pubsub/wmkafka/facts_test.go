package wmkafka

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// The facts about watermill-kafka that this package answers to, each with what it does about it. When a test of
// watermill-kafka alone fails, watermill-kafka repaired it: say so in the README.

func stockWith(u kafka.Unmarshaler) kafka.SubscriberConfig {
	return kafka.SubscriberConfig{Unmarshaler: u, NackResendSleep: 10 * time.Millisecond}
}

// Fact, feature D8: a record that its unmarshaler cannot read stops the partition for good. TestUnreadableIsSetAside
// shows that ours sets it aside and goes on.
func TestFactWatermillStopsAtUnreadable(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	records := numbered(3)
	records[1].Value = sarama.ByteEncoder("\x00unreadable")
	c.produce(records...)
	dead, handled := &sink{}, &sink{}
	c.run(c.stock(stockWith(picky{})), c.channel(spillway.Config{Publisher: dead}).Attach,
		func(msg *message.Message) error { return handled.Publish("", msg) })
	c.eventually("the first is handled", func() bool { return len(handled.Taken()) == 1 })
	time.Sleep(4 * time.Second)
	testkit.Check(t, len(handled.Taken()) == 1 && len(dead.Taken()) == 0, "the partition goes on")
}

// Fact, promise P3: the message's context does not end with the group session, so a handler that waits stops the topic
// for all instances. TestAckInTheGraceOfRebalance shows that with ours it does.
func TestFactWatermillHandlerStopsRebalance(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.produce(numbered(1)...)
	held := c.next(c.subscribe(c.stock(kafka.SubscriberConfig{})))
	c.subscribe(c.stock(kafka.SubscriberConfig{}))
	time.Sleep(5 * time.Second)
	testkit.Check(t, held.Context().Err() == nil && c.members() != 2, "the rebalance is over")
	held.Ack()
}

// Fact, promise P3: a nacked message is delivered again and again after its session has ended, and keeps the partition.
// TestRebalanceInNackBackoff shows that ours leaves it.
func TestFactWatermillResendsAfterSession(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.produce(numbered(1)...)
	messages := c.subscribe(c.stock(stockWith(kafka.DefaultMarshaler{})))
	c.next(messages).Nack()
	c.subscribe(c.stock(stockWith(kafka.DefaultMarshaler{})))
	end := time.Now().Add(5 * time.Second)
	for n := 0; n < 100 || time.Now().Before(end); n++ {
		c.next(messages).Nack()
	}
	testkit.Check(t, c.members() != 2, "the rebalance is over")
	c.next(messages).Ack()
}

// Fact, features D1 and R10, decision 5: the stock marshaler drops the key, makes one header of several with the same
// name, and refuses metadata with the name of its own header. TestRecordSurvives and TestMessageSurvivesProperty show
// that ours does not.
func TestFactWatermillMarshalerLoses(t *testing.T) {
	stock := kafka.DefaultMarshaler{}
	record := &sarama.ConsumerMessage{Key: []byte("key"), Headers: headers("via", "a", "via", "b")}
	back := marshal(t, stock, "orders", unmarshal(t, stock, record))
	testkit.Check(t, back.Key == nil && !strings.Contains(text(back), `"a"`), "it keeps more than it did")
	msg := message.NewMessage("id", nil)
	msg.Metadata.Set(kafka.UUIDHeaderKey, "x")
	testkit.Check(t, testkit.Err(stock.Marshal("orders", msg)) != nil,
		"it takes metadata with the name of its own header")
}

// Fact, promise P2: a handler that appends to its payload writes into the messages behind it.
func TestFactWatermillPayloadsOverlap(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	producer := c.newProducer(func(config *sarama.Config) {
		config.Producer.Flush.Messages, config.Producer.Flush.Frequency = 2, 5*time.Second // both in one batch
	})
	testkit.NoError(t, producer.SendMessages([]*sarama.ProducerMessage{
		{Topic: c.topic, Value: sarama.StringEncoder("payload 0")}, {Topic: c.topic, Value: sarama.StringEncoder("payload 1")},
	}))
	messages := c.subscribe(c.stock(kafka.SubscriberConfig{}))
	first := c.next(messages)
	_ = append(first.Payload, strings.Repeat("!", 14)...)
	first.Ack()
	second := c.next(messages)
	testkit.Check(t, string(second.Payload) != "payload 1", "the second message is as it was")
	second.Ack()
}

// Promise P2: with ours it does not, whichever marshaler reads, and whichever subscriber our marshaler is in.
func TestPayloadsDoNotOverlap(t *testing.T) {
	for _, unmarshaler := range []kafka.Unmarshaler{Marshaler{}, Marshaler{Inner: kafka.DefaultMarshaler{}}, readBy{kafka.DefaultMarshaler{}}} {
		both := []byte("payload 0payload 1")
		msg := unmarshal(t, unmarshaler, &sarama.ConsumerMessage{Value: both[:len("payload 0")]})
		_ = append(msg.Payload, "!!!"...)
		testkit.Equal(t, fmt.Sprintf("%T", unmarshaler), string(both), "payload 0payload 1")
	}
}

// readBy reads as a subscriber does with another marshaler.
type readBy struct{ kafka.Unmarshaler }

func (r readBy) Unmarshal(record *sarama.ConsumerMessage) (*message.Message, error) {
	return read(r.Unmarshaler, record), nil
}

// Fact, feature D5: a topic that is created the usual way forgets letters after 7 days, and takes none of the largest.
// TestInitializeTopics shows what ours creates.
func TestFactKafkaTopicExpires(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	found := testkit.Must(describeTopic(c.admin, c.topic))
	testkit.Check(t, found.retentionMs == "604800000" && found.maxMessageBytes == kafkaMaxMessageBytes,
		"it is %+v", found)
}

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

package wmkafka

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testkit"
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
	c.eventually("the first is handled", func() bool { return len(handled.all()) == 1 })
	time.Sleep(4 * time.Second)
	testkit.Check(t, len(handled.all()) == 1 && len(dead.all()) == 0, "the partition goes on")
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
	testkit.Check(t, testkit.Err(stock.Marshal("orders", msg)) != nil, "it takes metadata with the name of its own header")
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

// Fact, promise P3: watermill's Retry and PoisonQueue dead-letter a healthy message when the subscription ends in a
// backoff; the root package's facts show it for the router, this for a context that the subscriber ends.
func TestFactSubscriptionEndsInBackoff(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.produce(numbered(1)...)
	dead := &sink{}
	ch := c.channel(spillway.Config{Publisher: dead})
	handle := ch.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, errBad })
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience) // a deadline, which is no failure either
	defer cancel()
	msg := c.next(testkit.Must(c.subscriber(SubscriberConfig{}).Subscribe(ctx, c.topic)))
	cancel()
	testkit.Check(t, testkit.Err(handle(msg)) != nil && len(dead.all()) == 0, "there are %d letters", len(dead.all()))
	msg.Nack()
}

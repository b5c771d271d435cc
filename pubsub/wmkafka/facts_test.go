package wmkafka

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
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
	c.run(c.stock(stockWith(picky{})), nil, c.channel(spillway.Config{Publisher: dead}).Attach, func(msg *message.Message) ([]*message.Message, error) {
		return nil, handled.Publish("", msg)
	})
	c.eventually("the first is handled", func() bool { return len(handled.all()) == 1 })
	time.Sleep(4 * time.Second)
	if n := len(handled.all()); n != 1 || len(dead.all()) != 0 {
		t.Errorf("%d handled, %d letters: the partition goes on", n, len(dead.all()))
	}
}

// waits subscribes, takes a message and holds it; then a second instance joins and is waited for, as long as d. It
// shows if the context of the held message ended and whether the rebalance did.
func waits(c *cluster, first, second message.Subscriber, d time.Duration) (ended, rebalanced bool) {
	c.produce(numbered(1)...)
	held := c.next(c.subscribe(first))
	c.subscribe(second)
	for deadline := time.Now().Add(d); !rebalanced && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		rebalanced = c.members() == 2
	}
	ended = held.Context().Err() != nil
	held.Ack()
	return ended, rebalanced
}

// Fact, promise P3: the message's context does not end with the group session, so a handler that waits stops the topic
// for all instances.
func TestFactWatermillHandlerStopsRebalance(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ended, rebalanced := waits(c, c.stock(kafka.SubscriberConfig{}), c.stock(kafka.SubscriberConfig{}), 6*time.Second)
	testkit.Check(t, !ended && !rebalanced, "context ended: %t, rebalanced: %t", ended, rebalanced)
}

// Promise P3: with ours it does, and the rebalance is over in seconds.
func TestHandlerStopsNoRebalance(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ended, rebalanced := waits(c, c.subscriber(SubscriberConfig{}), c.subscriber(SubscriberConfig{}), patience)
	testkit.Check(t, ended && rebalanced, "context ended: %t, rebalanced: %t", ended, rebalanced)
}

// nacks nacks every message of a subscriber while a second instance joins, and returns how many deliveries there were
// within d after the join began, or until there were so many, and whether the rebalance ended meanwhile.
func nacks(c *cluster, joiner, holder message.Subscriber, d time.Duration, least int) (deliveries int, rebalanced bool) {
	c.produce(numbered(1)...)
	messages := c.subscribe(holder)
	c.next(messages).Nack()
	other := c.subscribe(joiner)
	for end, patient := time.After(d), time.After(patience); ; {
		select {
		case msg := <-messages:
			deliveries++
			msg.Nack()
			continue
		case msg := <-other:
			deliveries++
			msg.Nack()
			continue
		case <-end:
			end = time.After(100 * time.Millisecond)
		case <-patient:
			least = 0
		}
		if deliveries >= least {
			return deliveries, c.members() == 2
		}
	}
}

// Fact, promise P3: a nacked message is delivered again and again after its session has ended, and keeps the partition.
func TestFactWatermillResendsAfterSession(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n, rebalanced := nacks(c, c.stock(stockWith(kafka.DefaultMarshaler{})), c.stock(stockWith(kafka.DefaultMarshaler{})), 6*time.Second, 100)
	t.Logf("%d deliveries", n)
	testkit.Check(t, n >= 100 && !rebalanced, "%d deliveries, rebalanced: %t", n, rebalanced)
}

// Promise P3: ours leaves the partition, and redelivers ever more slowly.
func TestNackedIsNotResentAfterSession(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n, _ := nacks(c, c.subscriber(SubscriberConfig{}), c.subscriber(SubscriberConfig{}), 6*time.Second, 0)
	testkit.Check(t, n <= 20, "%d deliveries", n)
	c.eventually("the rebalance is over", func() bool { return c.members() == 2 })
}

// Fact, features D1 and R10, decision 5: the stock marshaler drops the key, makes one header of several with the same
// name, and refuses metadata with the name of its own header. TestRecordSurvives and TestMessageSurvivesProperty show
// that ours does not.
func TestFactWatermillMarshalerLoses(t *testing.T) {
	stock := kafka.DefaultMarshaler{}
	record := &sarama.ConsumerMessage{Key: []byte("key"), Headers: headers("via", "a", "via", "b")}
	back := marshal(t, stock, "orders", unmarshal(t, stock, record))
	if back.Key != nil || strings.Contains(text(back), `"a"`) {
		t.Errorf("it keeps more than it did: %s", text(back))
	}
	msg := message.NewMessage("id", nil)
	msg.Metadata.Set(kafka.UUIDHeaderKey, "x")
	if _, err := stock.Marshal("orders", msg); err == nil {
		t.Error("it takes metadata with the name of its own header")
	}
}

// Fact, promise P2: a handler that appends to its payload writes into the messages behind it.
func TestFactWatermillPayloadsOverlap(t *testing.T) {
	t.Parallel()
	if second := appended(t, func(c *cluster) message.Subscriber { return c.stock(kafka.SubscriberConfig{}) }); second == "payload 1" {
		t.Error("the second message is as it was")
	}
}

// Promise P2: with ours it does not, whichever subscriber our marshaler is in.
func TestPayloadsDoNotOverlap(t *testing.T) {
	t.Parallel()
	for who, make := range map[string]func(*cluster) message.Subscriber{
		"ours": func(c *cluster) message.Subscriber { return c.subscriber(SubscriberConfig{}) },
		"other": func(c *cluster) message.Subscriber {
			return c.subscriber(SubscriberConfig{Unmarshaler: kafka.DefaultMarshaler{}})
		},
		"watermill's": func(c *cluster) message.Subscriber { return c.stock(stockWith(Marshaler{})) },
	} {
		if second := appended(t, make); second != "payload 1" {
			t.Errorf("%s: the second message is %q", who, second)
		}
	}
}

// appended appends to the payload of the first message and returns that of the second.
func appended(t *testing.T, make func(*cluster) message.Subscriber) string {
	c := newCluster(t)
	config := publisherDefaults()
	config.Producer.Flush.Messages, config.Producer.Flush.Frequency = 2, 5*time.Second // both in one batch
	producer, err := sarama.NewSyncProducer(c.brokers, config)
	testkit.NoError(t, err)
	records := numbered(2)
	for _, record := range records {
		record.Topic = c.topic
		record.Headers = nil
	}
	testkit.NoError(t, errors.Join(producer.SendMessages(records), producer.Close()))
	messages := c.subscribe(make(c))
	first := c.next(messages)
	_ = append(first.Payload, strings.Repeat("!", 14)...)
	first.Ack()
	second := c.next(messages)
	defer second.Ack()
	return string(second.Payload)
}

// Fact, feature D5: a topic that is created the usual way forgets letters after 7 days, and takes none of the largest.
// TestInitializeTopics shows what ours creates.
func TestFactKafkaTopicExpires(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	found, err := describeTopic(c.admin, c.topic)
	testkit.NoError(t, err)
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
	var failed atomic.Int32
	ch := c.channel(spillway.Config{Publisher: dead})
	sub := c.subscriber(SubscriberConfig{})
	handle := ch.Middleware(func(*message.Message) ([]*message.Message, error) {
		failed.Add(1)
		return nil, errors.New("failed")
	})
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience) // a deadline, which is no failure either
	defer cancel()
	messages, err := sub.Subscribe(ctx, c.topic)
	testkit.NoError(t, err)
	msg := c.next(messages)
	cancel()
	if _, err := handle(msg); err == nil || len(dead.all()) != 0 {
		t.Errorf("error %v, %d letters", err, len(dead.all()))
	}
	msg.Nack()
}

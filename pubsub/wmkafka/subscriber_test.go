package wmkafka

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
)

// Bad input: a configuration that cannot work, or could lose messages, is an error that names the field.
func TestSubscriberConfig(t *testing.T) {
	brokers := []string{"127.0.0.1:1"}
	invalid := func(c *sarama.Config) { c.Consumer.Group.Heartbeat.Interval = -1 }
	for name, row := range map[string]struct {
		brokers []string
		group   string
		config  SubscriberConfig
		says    string
	}{
		"no brokers": {nil, "g", SubscriberConfig{}, "no brokers"},
		"no group":   {brokers, "", SubscriberConfig{}, "group is empty: without a group"},
		"in flight":  {brokers, "g", SubscriberConfig{InFlight: -1}, "InFlight is -1: it must be 1 to 10000"},
		"too many":   {brokers, "g", SubscriberConfig{InFlight: 10_001}, "InFlight"},
		"sarama":     {brokers, "g", SubscriberConfig{Sarama: invalid}, "Sarama"},
	} {
		if _, err := NewSubscriber(row.brokers, row.group, row.config); err == nil || !strings.HasPrefix(err.Error(), "wmkafka: ") || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What watermill-kafka's getters tell of a message, they tell of ours, in the same types; and the same goes for what
// the message itself is.
func TestContextOfStockSubscriber(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.produce(numbered(3)...)
	record := numbered(1)[0]
	record.Key, record.Timestamp = sarama.StringEncoder("key"), time.Now().Add(-time.Hour)
	c.produce(record)
	type told struct {
		partition int32
		offset    int64
		timestamp time.Time
		key       string
		id        string
		ok        [4]bool
	}
	last := func(sub message.Subscriber) (x told) {
		messages := c.subscribe(sub)
		for range 4 {
			msg := c.next(messages)
			ctx := msg.Context()
			x.id = msg.UUID
			x.partition, x.ok[0] = kafka.MessagePartitionFromCtx(ctx)
			x.offset, x.ok[1] = kafka.MessagePartitionOffsetFromCtx(ctx)
			x.timestamp, x.ok[2] = kafka.MessageTimestampFromCtx(ctx)
			var key []byte
			key, x.ok[3] = kafka.MessageKeyFromCtx(ctx)
			x.key = string(key)
			msg.Ack()
		}
		return x
	}
	stock := last(c.stock(kafka.SubscriberConfig{ConsumerGroup: c.group + "-stock"}))
	ours := last(c.subscriber(SubscriberConfig{}))
	if ours != stock || ours.offset != 3 || ours.key != "key" || ours.ok != [4]bool{true, true, true, true} {
		t.Errorf("ours %+v, stock %+v", ours, stock)
	}
}

// Feature D1: Origin tells what Kafka knows, less of it with the stock subscriber, and nothing wrong without Kafka.
func TestOrigin(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	record := numbered(1)[0]
	record.Key, record.Timestamp = sarama.ByteEncoder{0, 0xff}, time.UnixMilli(1700000000000)
	c.produce(record)
	want := poison.Origin{Topic: c.topic, Partition: "0", Offset: "0", Timestamp: record.Timestamp, Key: []byte{0, 0xff}, MessageID: "id-0", ConsumerGroup: c.group}
	same := func(a, b poison.Origin) bool {
		key := string(a.Key) == string(b.Key) && a.Timestamp.Equal(b.Timestamp)
		a.Key, b.Key, a.Timestamp, b.Timestamp = nil, nil, time.Time{}, time.Time{}
		return key && a.Topic == b.Topic && a.Partition == b.Partition && a.Offset == b.Offset && a.MessageID == b.MessageID && a.ConsumerGroup == b.ConsumerGroup
	}
	msg := c.next(c.subscribe(c.subscriber(SubscriberConfig{})))
	if got := Origin(msg); !same(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	msg.Ack()
	want.ConsumerGroup, want.Topic = "", "" // a router would know the topic
	msg = c.next(c.subscribe(c.stock(kafka.SubscriberConfig{ConsumerGroup: c.group + "-stock"})))
	if got := Origin(msg); !same(got, want) {
		t.Errorf("stock: got %+v, want %+v", got, want)
	}
	msg.Ack()
	for _, msg := range []*message.Message{nil, {}, message.NewMessage("id", nil)} {
		got := Origin(msg)
		if msg != nil && got.MessageID != msg.UUID || got.Partition != "" || got.Offset != "" || got.Key != nil || !got.Timestamp.IsZero() {
			t.Errorf("without Kafka: %+v", got)
		}
	}
}

// Promise P5: a message costs no goroutine, however deep its context.
func TestNoGoroutinePerMessage(t *testing.T) {
	session, end := context.WithCancel(context.Background())
	defer end()
	before := runtime.NumGoroutine()
	for range 100 {
		ctx, cancel := context.WithCancel(&recordContext{Context: session, record: &sarama.ConsumerMessage{}})
		defer cancel()
		if n := runtime.NumGoroutine(); n > before {
			t.Fatalf("%d goroutines more", n-before)
		}
		if ctx.Err() != nil {
			t.Fatal(ctx.Err())
		}
	}
}

// The context of a message ends when it is settled, acked or nacked, as the stock one does after the ack.
func TestContextEndsWithTheMessage(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.produce(numbered(2)...)
	messages := c.subscribe(c.subscriber(SubscriberConfig{}))
	first := c.next(messages)
	testkit.Check(t, first.Context().Err() == nil, "the context has ended before the message was settled")
	first.Nack()
	again := c.next(messages)
	if first.Context().Err() == nil || again.Context().Err() != nil || again.UUID != first.UUID {
		t.Errorf("nacked: %v, redelivered: %v", first.Context().Err(), again.Context().Err())
	}
	again.Ack()
	next := c.next(messages)
	if again.Context().Err() == nil || next.UUID != "id-1" {
		t.Errorf("acked: %v, next %q", again.Context().Err(), next.UUID)
	}
	next.Ack()
}

// Promise P4: a nacked message comes again as it was, each time later, up to the longest wait; the ones behind it wait.
func TestNackBackoff(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.produce(numbered(2)...)
	messages := c.subscribe(c.subscriber(SubscriberConfig{nackBackoff: 50 * time.Millisecond, maxNackBackoff: 200 * time.Millisecond}))
	last, atLeast := time.Time{}, 50*time.Millisecond
	const redeliveries = 12 // without a longest wait the last would come after a minute and a half
	for i := range redeliveries + 1 {
		msg := c.next(messages)
		if waited := time.Since(last); i > 0 && waited < atLeast {
			t.Errorf("redelivery %d after %s, want %s", i, waited, atLeast)
		} else if i > 0 {
			atLeast = min(2*atLeast, 200*time.Millisecond)
		}
		testkit.Check(t, msg.UUID == "id-0" && string(msg.Payload) == "payload 0",
			"redelivery %d is %q with %q", i, msg.UUID, msg.Payload)
		last = time.Now()
		if i < redeliveries {
			msg.Nack()
		} else {
			msg.Ack()
		}
	}
	if msg := c.next(messages); msg.UUID != "id-1" || !msg.Ack() {
		t.Errorf("then came %q", msg.UUID)
	}
}

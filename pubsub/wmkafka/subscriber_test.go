package wmkafka

import (
	"fmt"
	"testing"
	"testing/synctest"
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
		"key":        {brokers, "g", SubscriberConfig{Key: func(*message.Message) string { return "" }}, "Key with InFlight 1"},
		"sarama":     {brokers, "g", SubscriberConfig{Sarama: invalid}, "Sarama"},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Says(t, testkit.Err(NewSubscriber(row.brokers, row.group, row.config)), row.says)
		})
	}
}

// Feature D1: Origin tells what Kafka knows, less of it with the stock subscriber, and nothing wrong without Kafka.
// What watermill-kafka's getters tell of a message, they tell of ours, in the same types.
func TestOrigin(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	record := numbered(1)[0]
	record.Key, record.Timestamp = sarama.ByteEncoder{0, 0xff}, time.UnixMilli(1700000000000)
	c.produce(record)
	type told struct {
		topic, partition, offset, key, id, group string
		at                                       int64
		getters                                  string
	}
	of := func(sub message.Subscriber) told {
		msg := c.next(c.subscribe(sub))
		defer msg.Ack()
		o, ctx := Origin(msg), msg.Context()
		partition, ok1 := kafka.MessagePartitionFromCtx(ctx)
		offset, ok2 := kafka.MessagePartitionOffsetFromCtx(ctx)
		at, ok3 := kafka.MessageTimestampFromCtx(ctx)
		key, ok4 := kafka.MessageKeyFromCtx(ctx)
		return told{o.Topic, o.Partition, o.Offset, string(o.Key), o.MessageID, o.ConsumerGroup, o.Timestamp.UnixMilli(),
			fmt.Sprint(partition, offset, at.UnixMilli(), key, ok1, ok2, ok3, ok4)}
	}
	want := told{c.topic, "0", "0", "\x00\xff", "id-0", c.group, 1700000000000, "0 0 1700000000000 [0 255] true true true true"}
	testkit.Equal(t, "ours", of(c.subscriber(SubscriberConfig{})), want)
	want.group, want.topic = "", "" // a router would know the topic
	testkit.Equal(t, "stock", of(c.stock(kafka.SubscriberConfig{ConsumerGroup: c.group + "-stock"})), want)
	for _, msg := range []*message.Message{nil, {}, message.NewMessage("id", nil)} {
		o := Origin(msg)
		testkit.Check(t, o.Partition == "" && o.Offset == "" && o.Key == nil && o.Timestamp.IsZero(),
			"without Kafka: %+v", o)
		testkit.Check(t, msg == nil || o.MessageID == msg.UUID, "without Kafka: %+v", o)
	}
}

// Feature I5, decision 15: Origin has a record's own coordinates, the same at each delivery, whatever its metadata
// claim, also those of a message that was redriven: a key made of them is no other record's.
func TestOriginAtEachDelivery(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.produce(identified("a"), &sarama.ProducerMessage{Headers: []sarama.RecordHeader{
		header(poison.KeyOriginalTopic, c.topic), header(poison.KeyOriginalPartition, "0"),
		header(poison.KeyOriginalOffset, "2"), header(poison.KeyRedriveCount, "1"),
	}})
	messages := c.subscribe(c.subscriber(SubscriberConfig{}))
	is := func(want string) *message.Message {
		t.Helper()
		msg := c.next(messages)
		own, _ := kafka.MessageTimestampFromCtx(msg.Context())
		o := Origin(msg)
		testkit.Equal(t, "place", fmt.Sprint(o.Topic, "/", o.Partition, "/", o.Offset), c.topic+want)
		testkit.Check(t, o.Timestamp.Equal(own), "the time is %s, want %s", o.Timestamp, own)
		return msg
	}
	is("/0/0").Nack()
	is("/0/0").Ack()
	forged := is("/0/1")
	letter := poison.Letter{Original: forged, Origin: Origin(forged)}
	forged.Ack()
	testkit.NoError(t, c.publisher(PublisherConfig{}).Publish(c.topic, letter.Redriven("me", "campaign", time.Now())))
	is("/0/2").Ack()
}

// Promise P4: a nacked message comes again as it was, each time later, up to the longest wait, and the ones behind it
// wait. Its context ends when it is settled.
func TestNackBackoff(t *testing.T) {
	consuming(t, 2, SubscriberConfig{nackBackoff: 50 * time.Millisecond, maxNackBackoff: 200 * time.Millisecond}, func(d deliveries) {
		for i, want := range []time.Duration{0, 50, 100, 200, 200, 200} {
			began := time.Now()
			msg := d.next()
			testkit.Check(t, string(msg.Payload) == "0" && time.Since(began) == want*time.Millisecond,
				"delivery %d is %s after %s", i, msg.Payload, time.Since(began))
			testkit.Check(t, msg.Context().Err() == nil, "the context has ended before the message was settled")
			if i < 5 {
				msg.Nack()
			} else {
				msg.Ack()
			}
			synctest.Wait()
			testkit.Check(t, msg.Context().Err() != nil, "the context goes on")
		}
		testkit.Equal(t, "then came", string(d.next().Payload), "1")
	})
}

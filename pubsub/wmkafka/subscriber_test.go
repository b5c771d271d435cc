package wmkafka

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/hold/graceful"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
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
func TestOrigin(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	record := numbered(1)[0]
	record.Key, record.Timestamp = sarama.ByteEncoder{0, 0xff}, time.UnixMilli(1700000000000)
	c.produce(record)
	type notified struct {
		topic, partition, offset, key, id, group string
		at                                       int64
		getters                                  string
	}
	of := func(sub message.Subscriber) notified {
		msg := c.next(c.subscribe(sub))
		defer msg.Ack()
		o, ctx := Origin(msg), msg.Context()
		partition, ok1 := kafka.MessagePartitionFromCtx(ctx)
		offset, ok2 := kafka.MessagePartitionOffsetFromCtx(ctx)
		at, ok3 := kafka.MessageTimestampFromCtx(ctx)
		key, ok4 := kafka.MessageKeyFromCtx(ctx)
		return notified{o.Topic, o.Partition, o.Offset, string(o.Key), o.MessageID, o.ConsumerGroup, o.Timestamp.UnixMilli(),
			fmt.Sprint(partition, offset, at.UnixMilli(), key, ok1, ok2, ok3, ok4)}
	}
	want := notified{c.topic, "0", "0", "\x00\xff", "id-0", c.group, 1700000000000, "0 0 1700000000000 [0 255] true true true true"}
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

// No broker: Subscribe and Backlog say so within bounded time, and Close returns.
func TestNoBroker(t *testing.T) {
	sub := testkit.Must(NewSubscriber([]string{"127.0.0.1:1"}, "g", SubscriberConfig{}))
	testkit.Within(t, "all says so", func() {
		testkit.Says(t, testkit.Err(sub.Subscribe(context.Background(), "orders")), `"orders"`)
		testkit.Says(t, testkit.Err(sub.Backlog(context.Background(), "orders")), `"orders"`)
		testkit.Is(t, errors.Join(sub.Close(), sub.Close()), nil)
	})
	testkit.Is(t, testkit.Err(sub.Subscribe(context.Background(), "orders")), ErrClosed)
}

// Promise P1: what was acked is committed by Close and does not come again; what was not does.
func TestOffsetsAcrossClose(t *testing.T) {
	t.Parallel()
	for name, autoCommit := range map[string]bool{"auto-commit": true, "commit by each ack": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.produce(numbered(5)...)
			sub := c.subscriber(SubscriberConfig{Sarama: func(config *sarama.Config) {
				config.Consumer.Offsets.AutoCommit.Enable = autoCommit
			}})
			messages := c.subscribe(sub)
			for range 3 {
				c.next(messages).Ack()
			}
			held := c.next(messages) // and is not acked
			testkit.NoError(t, sub.Close())
			testkit.Is(t, held.Context().Err(), context.Canceled)
			held.Ack() // too late: the subscription ended
			c.over(messages)
			testkit.Equal(t, "committed", c.committed(), 3)
			msg := c.next(c.subscribe(c.subscriber(SubscriberConfig{})))
			testkit.Check(t, msg.UUID == "id-3" && msg.Ack(), "the next subscriber begins with %q", msg.UUID)
		})
	}
}

// Promise P3: when the subscriber is closed under a handler, the handler learns of it, has the grace to finish, and its
// ack counts; one that does not care holds nothing up.
func TestCloseUnderHandler(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		settle    func(*message.Message)
		grace     time.Duration
		committed int64
	}{
		"acks in the grace":  {func(msg *message.Message) { <-msg.Context().Done(); msg.Ack() }, patience, 1},
		"nacks in the grace": {func(msg *message.Message) { <-msg.Context().Done(); msg.Nack() }, patience, 0},
		"does not care":      {func(*message.Message) {}, time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.produce(numbered(2)...)
			sub := c.subscriber(SubscriberConfig{settleGrace: row.grace})
			messages := c.subscribe(sub)
			msg := c.next(messages)
			go row.settle(msg)
			c.closes(sub)
			c.over(messages)
			testkit.Equal(t, "committed", c.committed(), row.committed)
		})
	}
}

// Promise P3: the message's context is cancelled, and so its message aborted, even where a deadline ended the
// subscription.
func TestDeadlineOfSubscription(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.produce(numbered(1)...)
	type key struct{}
	ctx, expire := testkit.Expiring(context.WithValue(context.Background(), key{}, "value"))
	messages := testkit.Must(c.subscriber(SubscriberConfig{}).Subscribe(ctx, c.topic))
	msg := c.next(messages)
	call := chain.Keep(msg)
	defer call.Release()
	expire()
	<-msg.Context().Done()
	testkit.Check(t, call.Gone() && msg.Context().Value(key{}) == "value", "it is not aborted, or has lost its values")
	testkit.Check(t, errors.Is(msg.Context().Err(), context.Canceled), "it ends with %v", msg.Context().Err())
	msg.Nack()
	c.over(messages)
}

// Promise P3: a message that was acked when the grace of its session ended is acked, however late the process comes to
// look. A pause of the process ends both, and a select takes any.
func TestAckedAtTheEndOfTheGrace(t *testing.T) {
	for round := range 1000 {
		g := newGroup(t, 0)
		s := subscriptionOf(t, SubscriberConfig{settleGrace: time.Nanosecond}, true)
		s.tenure = s.begin(g, graceful.TimeoutOf(g.Context()))
		d := s.deliver(s.tenure.work, &sarama.ConsumerMessage{Topic: "orders"})
		g.end()
		d.msg.Ack()
		how := d.settled(d.of.Done())
		testkit.Require(t, how == acked, "round %d: settled as %d", round, how)
	}
}

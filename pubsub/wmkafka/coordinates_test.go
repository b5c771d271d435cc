package wmkafka

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/foreign"
	"github.com/watermill-spillway/spillway/poison"
)

// Feature I5, decision 15: a record's own coordinates are its key, the same at each delivery, whatever its metadata
// claim: no record takes the key of another. So it is for a message that was redriven, whose metadata any producer
// could have written.
func TestByCoordinates(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	at := time.UnixMilli(1_700_000_000_123)
	c.produce(&sarama.ProducerMessage{Value: sarama.StringEncoder("a"), Timestamp: at}, &sarama.ProducerMessage{
		Value: sarama.StringEncoder("b"), Timestamp: at, Headers: []sarama.RecordHeader{
			header(poison.KeyOriginalTopic, c.topic), header(poison.KeyOriginalPartition, "0"), header(poison.KeyOriginalOffset, "2"), header(poison.KeyRedriveCount, "1"),
		},
	})
	messages := c.subscribe(c.subscriber(SubscriberConfig{}))
	is := func(msg *message.Message, want string) {
		t.Helper()
		if key, err := ByCoordinates(msg); err != nil || key != want {
			t.Errorf("%q, %v; want %q", key, err, want)
		}
	}
	first := c.next(messages)
	is(first, c.topic+"/0/0/1700000000123")
	first.Nack()
	again := c.next(messages)
	is(again, c.topic+"/0/0/1700000000123")
	again.Ack()
	forged := c.next(messages)
	is(forged, c.topic+"/0/1/1700000000123")
	letter := poison.Letter{Original: forged, Origin: Origin(forged)}
	forged.Ack()
	if err := c.publisher(PublisherConfig{}).Publish(c.topic, letter.Redriven("me", "campaign", time.Now())); err != nil {
		t.Fatal(err)
	}
	redriven := c.next(messages)
	own, _ := kafka.MessageTimestampFromCtx(redriven.Context())
	is(redriven, fmt.Sprint(c.topic, "/0/2/", own.UnixMilli()))
	redriven.Ack()
	if _, err := ByCoordinates(message.NewMessage("1", nil)); (*classify.Classifier)(nil).Classify(err).Class != classify.ClassInvalid {
		t.Error(err)
	}
}

// Feature I5: a topic that was deleted and made again begins at offset 0, and meets none of the keys of the first one.
// Of watermill-kafka's subscriber, which does not tell a stage's topic, a record in a stage has another key than one of
// the live topic with its offset.
func TestByCoordinates_sameOffset(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	key := func(sub message.Subscriber) string {
		t.Helper()
		c.produce(&sarama.ProducerMessage{Value: sarama.StringEncoder("a")})
		ctx, cancel := context.WithCancel(t.Context())
		messages, err := sub.Subscribe(ctx, c.topic)
		if err != nil {
			t.Fatal(err)
		}
		msg := c.next(messages)
		if origin := Origin(msg); origin.Offset != "0" {
			t.Fatalf("offset %s", origin.Offset)
		}
		msg.SetContext(foreign.Within(msg.Context(), "billing", c.topic)) // as the router does
		key, err := ByCoordinates(msg)
		if err != nil {
			t.Fatal(err)
		}
		keys := map[string]bool{key: true}
		for _, topic := range []string{"orders.billing.retry.5s", "orders.billing.retry.1m"} {
			msg.SetContext(chain.WithReentry(msg.Context(), &chain.Reentry{Handler: "billing", As: "billing", Topic: topic}))
			staged, err := ByCoordinates(msg)
			if err != nil {
				t.Fatal(err)
			}
			keys[staged] = true
		}
		if _, ours := sub.(*Subscriber); ours && len(keys) != 1 || !ours && len(keys) != 3 {
			t.Errorf("live and in two stages of %T: %v", sub, keys)
		}
		msg.Ack()
		cancel()
		for range messages {
		}
		return key
	}
	before := key(c.subscriber(SubscriberConfig{}))
	if err := c.admin.DeleteTopic(c.topic); err != nil {
		t.Fatal(err)
	}
	c.eventually("the topic is gone", func() bool {
		_, err := topicMetadata(c.admin, c.topic)
		return errors.Is(err, sarama.ErrUnknownTopicOrPartition)
	})
	c.create(c.topic, 1, nil)
	if after := key(c.stock(kafka.SubscriberConfig{ConsumerGroup: c.group + "-again"})); after == before {
		t.Errorf("both records have the key %q", after)
	}
}

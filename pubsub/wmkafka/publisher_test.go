package wmkafka

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Bad input: a configuration that cannot work, or would confirm what is not safe, is an error that names the field.
func TestPublisherConfig(t *testing.T) {
	brokers := []string{"127.0.0.1:1"}
	for name, row := range map[string]struct {
		brokers []string
		config  PublisherConfig
		says    string
	}{
		"no brokers":   {nil, PublisherConfig{}, "no brokers"},
		"size":         {brokers, PublisherConfig{Sarama: sends(-1)}, "MaxMessageBytes"},
		"no acks":      {brokers, PublisherConfig{Sarama: func(c *sarama.Config) { c.Producer.RequiredAcks = sarama.NoResponse }}, "RequiredAcks"},
		"idempotent":   {brokers, PublisherConfig{Sarama: func(c *sarama.Config) { c.Producer.Idempotent = true }}, "Idempotent"},
		"leader's ack": {brokers, PublisherConfig{Sarama: func(c *sarama.Config) { c.Producer.RequiredAcks = sarama.WaitForLocal }}, "RequiredAcks"},
		"transactions": {brokers, PublisherConfig{Sarama: func(c *sarama.Config) { c.Producer.Transaction.ID = "x" }}, "Transaction.ID"},
		"sarama":       {brokers, PublisherConfig{Sarama: func(c *sarama.Config) { c.Net.MaxOpenRequests = 0 }}, "Sarama"},
		"no broker":    {brokers, PublisherConfig{}, "127.0.0.1:1"},
	} {
		if _, err := NewPublisher(row.brokers, row.config); err == nil || !strings.HasPrefix(err.Error(), "wmkafka: ") || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Promise P1: a Publish of several stops at the first refusal and says how far it came.
func TestPublishSeveral(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	pub := c.publisher(PublisherConfig{})
	good := message.NewMessage("good", []byte("x"))
	testkit.NoError(t, pub.Publish(c.topic, good, good, good))
	testkit.NoError(t, pub.Publish(c.topic))
	for name, refused := range map[string]*message.Message{"nil": nil, "too large": message.NewMessage("large", make([]byte, 2<<20))} {
		err := pub.Publish(c.topic, good, refused, good)
		if err == nil || !strings.Contains(err.Error(), "message 2 of 3 failed, 1 were published") || !strings.Contains(err.Error(), c.topic) {
			t.Errorf("%s: %v", name, err)
		}
		if large := refused != nil; errors.Is(err, classify.ErrTooLarge) != large {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := c.size(c.topic); n != 5 {
		t.Errorf("%d records", n)
	}
	if isTooLarge(nil) || isTooLarge(sarama.ErrNotEnoughReplicas) || isTooLarge(sarama.ConfigurationError("other")) || !isTooLarge(sarama.ErrMessageSetSizeTooLarge) {
		t.Error("other refusals are taken for one of the size")
	}
}

// A topic that is missing is not made up by publishing to it. The error says what to do.
func TestMissingTopic(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	pub := c.publisher(PublisherConfig{})
	c.ends("Publish", func() {
		testkit.Says(t, pub.Publish(c.topic+"-missing", message.NewMessage("", nil)), "create the topic")
	})
}

// Decision 10: the backlog is what the group has not acked, from its first message on where it never came.
func TestBacklog(t *testing.T) {
	t.Parallel()
	c := newPartitioned(t, 2)
	records := numbered(5)
	records[4].Partition = 1
	c.produce(records...)
	sub := c.subscriber(SubscriberConfig{})
	check := func(sub *Subscriber, want int) {
		t.Helper()
		testkit.Returns(t, want)(sub.Backlog(context.Background(), c.topic))
	}
	check(sub, 5)
	newest := func(config *sarama.Config) { config.Consumer.Offsets.Initial = sarama.OffsetNewest }
	check(c.subscriber(SubscriberConfig{Sarama: newest}), 0)
	messages := c.subscribe(sub)
	for range 3 {
		c.next(messages).Ack()
	}
	testkit.NoError(t, sub.Close())
	check(sub, 2)
	testkit.Says(t, testkit.Err(sub.Backlog(context.Background(), c.topic+"-missing")), c.topic+"-missing")
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	testkit.Is(t, testkit.Err(sub.Backlog(ended, c.topic)), context.Canceled)
}

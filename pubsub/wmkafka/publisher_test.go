package wmkafka

import (
	"context"
	"testing"

	"github.com/IBM/sarama"

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
		"in flight":    {brokers, PublisherConfig{InFlight: -1}, "InFlight"},
		"too many":     {brokers, PublisherConfig{InFlight: maxPublishing + 1}, "InFlight"},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Says(t, testkit.Err(NewPublisher(row.brokers, row.config)), row.says)
		})
	}
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

package wmkafka

import (
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// generation is the state of the group as its members see it: it changes with each rebalance.
func (c *cluster) generation() (ids []string) {
	c.Helper()
	groups, err := c.admin.DescribeConsumerGroups([]string{c.group})
	if err != nil || len(groups) != 1 || groups[0].State != "Stable" {
		return nil
	}
	for id := range groups[0].Members {
		ids = append(ids, id)
	}
	return ids
}

// A partition whose message is held is not fetched without end: the client stops when its channel is full.
func TestHeldFetchesNoMore(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const records, size = 20_000, 1 << 10
	for range records / 500 { // 500 fit into a request
		batch := make([]*sarama.ProducerMessage, 500)
		for i := range batch {
			batch[i] = &sarama.ProducerMessage{Topic: c.topic, Value: sarama.ByteEncoder(make([]byte, size))}
		}
		testkit.NoError(t, c.producer.SendMessages(batch))
	}
	for _, inFlight := range []int{1, 100} {
		sub := c.subscriber(SubscriberConfig{InFlight: inFlight}, c.group+string(rune('a'+inFlight)))
		messages := c.subscribe(sub)
		for range inFlight {
			c.next(messages) // and nothing is done with it
		}
		fetched := func() int64 {
			return sub.config.client.MetricRegistry.Get("incoming-byte-rate").(interface{ Count() int64 }).Count()
		}
		// Heartbeats go on. Fetching has stopped when the rest is too little for a record, over several of sarama's
		// fetches.
		before, since := fetched(), time.Now()
		c.eventually("nothing is fetched any more", func() bool {
			if now := fetched(); now-before > 16<<10 {
				before, since = now, time.Now()
			}
			return time.Since(since) > 2*time.Second
		})
		got := fetched()
		testkit.Check(t, got >= size && got <= 5<<20, "InFlight %d: %d bytes were fetched while messages are held", inFlight, got)
	}
}

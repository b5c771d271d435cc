package wmkafka

import (
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/internal/outage"
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

// A message on Kafka may be held for as long as its session lives: it is not requeued only to come again.
func TestMayBeHeldForLong(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.produce(numbered(2)...)
	for _, inFlight := range []int{1, 2} {
		messages := c.subscribe(c.subscriber(SubscriberConfig{InFlight: inFlight}, "group-"+c.group+string(rune('0'+inFlight))))
		if hold := outage.MaxHold(c.next(messages).Context(), 0); hold != maxHold {
			t.Errorf("InFlight %d: a message may be held for %s", inFlight, hold)
		}
	}
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
		t.Logf("InFlight %d: %d bytes of %d were fetched", inFlight, fetched(), records*size)
		if got := fetched(); got < size || got > 5<<20 {
			t.Errorf("InFlight %d: %d bytes of %d were fetched while the messages are held", inFlight, got, records*size)
		}
	}
}

package wmkafka

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
)

// generation is the state of the group, or another, as its members see it: it changes with each rebalance.
func (c *cluster) generation(group ...string) (ids []string) {
	c.Helper()
	groups, err := c.admin.DescribeConsumerGroups(append(group, c.group)[:1])
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
		testkit.Check(t, got >= size && got <= 5<<20,
			"InFlight %d: %d bytes were fetched while messages are held", inFlight, got)
	}
}

// Feature R12, promise P3: while the breaker holds the messages of a handler, the session of their group outlives the
// session timeout. A lost session ends the contexts of held messages, which are requeued.
func TestHeldInOutage(t *testing.T) {
	t.Parallel()
	for name, inFlight := range map[string]int{"in turn": 1, "in flight": 8} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 50
			c := newCluster(t)
			c.produce(numbered(n)...)
			var unavailable atomic.Bool
			unavailable.Store(true)
			dead, done, handled := &sink{}, sync.Map{}, atomic.Int64{}
			ch := c.channel(spillway.Config{Publisher: dead,
				Breaker: &breaker.Config{Probe: 50 * time.Millisecond, MaxProbe: 100 * time.Millisecond}})
			waiting := func() int {
				for _, s := range ch.Breaker().Health() {
					if s.State != circuit.Closed {
						return s.Waiting
					}
				}
				return 0
			}
			held := func() bool { return waiting() >= max(1, inFlight-1) } // one can be the probe
			dialer := &faulty{}
			c.run(c.subscriber(SubscriberConfig{InFlight: inFlight, Sarama: dialer.soon}), ch.Attach, func(msg *message.Message) error {
				if unavailable.Load() {
					return classify.Unavailable(errors.New("connection refused"))
				}
				_, again := done.LoadOrStore(msg.UUID, nil)
				if !again {
					handled.Add(1)
				}
				return nil
			})
			c.eventually("the breaker holds messages", held)
			var before, now []string
			c.eventually("it is a member", func() bool { before = c.generation(); return len(before) == 1 })
			time.Sleep(9 * time.Second)
			c.eventually("the broker knows its members", func() bool { now = c.generation(); return len(now) == 1 })
			testkit.Require(t, slices.Equal(now, before), // an expelled member comes back under another id
				"members %v, after %v: the session was lost while a message was held", now, before)
			dialer.set(false, true)
			c.eventually("the session is lost, and its messages are requeued", func() bool { return waiting() == 0 })
			dialer.set(false, false)
			c.eventually("the next session's messages are held", held)
			testkit.Check(t, len(dead.Taken()) == 0 && handled.Load() == 0 && c.committed() <= 0,
				"%d letters, %d handled, %d committed in the outage", len(dead.Taken()), handled.Load(), c.committed())
			unavailable.Store(false)
			c.eventually("all are handled", func() bool { return handled.Load() == n })
			c.eventually("all are committed", func() bool { return c.committed() == n })
			testkit.Check(t, len(dead.Taken()) == 0, "%d letters", len(dead.Taken()))
		})
	}
}

// Promise P3: when all brokers come back, no rebalance waits for the member that this process was before.
func TestNoMemberIsLeftBehind(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	dialer := &faulty{}
	messages := c.subscribe(c.subscriber(SubscriberConfig{Sarama: func(config *sarama.Config) {
		dialer.into(config)
		group := &config.Consumer.Group
		group.Session.Timeout, group.Rebalance.Timeout, config.Net.ReadTimeout = 4*time.Minute, 4*time.Minute, 5*time.Minute
	}}))
	c.produce(numbered(1)...)
	c.next(messages).Ack()
	dialer.set(false, true)
	c.eventually("the client gives up", func() bool { return dialer.refusals() > 20 })
	dialer.set(false, false)
	c.produce(numbered(1)...)
	c.next(messages).Ack()
	testkit.Equal(t, "members of the group", c.members(), 1)
}

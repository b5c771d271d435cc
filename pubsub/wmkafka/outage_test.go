package wmkafka

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/outage"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

// downstream is what a handler calls, and can be away.
type downstream struct {
	away  atomic.Bool
	lock  sync.Mutex
	done  map[string]int
	calls atomic.Int64 // while it was away
}

func (d *downstream) handle(msg *message.Message) ([]*message.Message, error) {
	if d.away.Load() {
		d.calls.Add(1)
		return nil, classify.Away(errors.New("connection refused"))
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	if d.done == nil {
		d.done = map[string]int{}
	}
	d.done[msg.UUID]++
	return nil, nil
}

func (d *downstream) distinct() int {
	d.lock.Lock()
	defer d.lock.Unlock()
	return len(d.done)
}

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

// Feature R12, promise P3: while the breaker holds the messages of a handler, the session of their group lives on, for longer than the broker lets a silent
// member live. A rebalance, Close and a lost session end the contexts of held messages, which go back uncounted. The guard holds what comes to the next
// owner. When the downstream is back, all messages are handled, and none is dead-lettered.
func TestHeldInOutage(t *testing.T) {
	t.Parallel()
	for name, inFlight := range map[string]int{"in turn": 1, "in flight": 8} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 100
			c := newPartitioned(t, 2)
			for i, record := range numbered(n) {
				record.Partition = int32(i % 2)
				c.produce(record)
			}
			dead, down := &sink{}, &downstream{}
			down.away.Store(true)
			ch := c.channel(spillway.Config{Publisher: dead, Outage: &breaker.Config{Probe: 50 * time.Millisecond, MaxProbe: 100 * time.Millisecond}})
			waiting := func() int {
				for _, s := range ch.Outage().Health() {
					if s.State != breaker.Closed {
						return s.Waiting
					}
				}
				return 0
			}
			dialer := &faulty{}
			config := dialer.into(SaramaSubscriberConfig())
			config.Consumer.Group.Session.Timeout = 6 * time.Second // the least that the broker takes
			first := c.subscriber(SubscriberConfig{InFlight: inFlight, Sarama: config})
			c.run(first, nil, ch.Attach, down.handle)
			c.eventually("the guard holds a message of each partition", func() bool { return waiting() >= 2*inFlight-1 })
			var before, now []string
			c.eventually("it is a member", func() bool { before = c.generation(); return len(before) == 1 })
			time.Sleep(9 * time.Second)
			c.eventually("the broker says who is a member", func() bool { now = c.generation(); return len(now) == 1 })
			if now[0] != before[0] { // an expelled member comes back under another id
				t.Fatalf("members %v, after %v: the session was lost while a message was held", now, before)
			}
			stop := c.run(c.subscriber(SubscriberConfig{InFlight: inFlight, Sarama: config}), nil, ch.Attach, down.handle)
			c.eventually("both are members", func() bool { return c.members() == 2 })
			c.eventually("the guard holds what came to the next owners", func() bool { return waiting() >= 2*inFlight-1 })
			c.ends("the second instance stops", stop)
			c.eventually("one is left", func() bool { return c.members() == 1 })
			c.eventually("it holds both partitions", func() bool { return waiting() >= 2*inFlight-1 })
			dialer.set(false, true)
			c.eventually("the session is lost, and its messages are requeued", func() bool { return waiting() == 0 })
			dialer.set(false, false)
			c.eventually("the next session's messages are held", func() bool { return waiting() >= 2*inFlight-1 })
			if got := len(dead.all()) + down.distinct(); got != 0 || c.committed() > 0 {
				t.Errorf("%d messages ended in the outage, and %d are committed", got, c.committed())
			}
			down.away.Store(false)
			c.eventually("all are handled", func() bool { return down.distinct() == n })
			c.eventually("all are committed", func() bool { return c.committed() == n/2 })
			if letters := dead.letters(t); len(letters) != 0 {
				t.Errorf("%d letters: %v", len(letters), letters[0].Failure)
			}
			t.Logf("%d calls while the downstream was away", down.calls.Load())
		})
	}
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
		if err := c.producer.SendMessages(batch); err != nil {
			t.Fatal(err)
		}
	}
	for _, inFlight := range []int{1, 100} {
		config := SaramaSubscriberConfig()
		messages := c.subscribe(c.subscriber(SubscriberConfig{Sarama: config, InFlight: inFlight}, c.group+string(rune('a'+inFlight))))
		for range inFlight {
			c.next(messages) // and nothing is done with it
		}
		fetched := func() int64 {
			return config.MetricRegistry.Get("incoming-byte-rate").(interface{ Count() int64 }).Count()
		}
		// Heartbeats go on. Fetching has stopped when the rest is too little for a record, over several of sarama's fetches.
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

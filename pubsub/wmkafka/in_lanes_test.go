package wmkafka

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// keyed are n records of so many keys, with ids "key/number".
func keyed(n, keys int) (records []*sarama.ProducerMessage) {
	for i := range n {
		key := fmt.Sprint("key-", i%keys)
		records = append(records, &sarama.ProducerMessage{
			Key: sarama.StringEncoder(key), Value: sarama.StringEncoder("payload"),
			Headers: []sarama.RecordHeader{header(kafka.UUIDHeaderKey, fmt.Sprintf("%s/%d", key, i))},
		})
	}
	return records
}

// history is what the handlers of a topic saw, by key.
type history struct {
	mu   sync.Mutex
	busy map[string]bool
	seen map[string][]string // acked
	most int                 // at the same time
}

func newHistory() *history { return &history{busy: map[string]bool{}, seen: map[string][]string{}} }

func (h *history) begin(t testing.TB, id string) {
	key, _, _ := strings.Cut(id, "/")
	h.mu.Lock()
	defer h.mu.Unlock()
	testkit.Check(t, !h.busy[key], "%s begins while another message of its key is handled", id)
	h.busy[key] = true
	n := 0
	for _, busy := range h.busy {
		if busy {
			n++
		}
	}
	h.most = max(h.most, n)
}

func (h *history) end(id string, acked bool) {
	key, _, _ := strings.Cut(id, "/")
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy[key] = false
	if acked {
		h.seen[key] = append(h.seen[key], id)
	}
}

func (h *history) count() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, seen := range h.seen {
		n += len(seen)
	}
	return n
}

// Feature R15: with 16 in flight the messages of a key are handled one at a time and in order, nacked ones too.
func TestLanesKeepOrder(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const n, keys = 600, 40
	c.produce(keyed(n, keys)...)
	messages := c.subscribe(c.subscriber(SubscriberConfig{InFlight: 16, nackBackoff: time.Millisecond}))
	h, nacked := newHistory(), map[string]bool{}
	go func() {
		for msg := range messages {
			again := nacked[msg.UUID]
			nacked[msg.UUID] = true
			go func() {
				h.begin(t, msg.UUID)
				time.Sleep(time.Millisecond)
				ack := again || len(msg.UUID)%3 > 0
				h.end(msg.UUID, ack)
				if ack {
					msg.Ack()
				} else {
					msg.Nack()
				}
			}()
		}
	}()
	c.eventually("all are committed", func() bool { return c.committed() == n })
	for key, seen := range h.seen {
		want := slices.IndexFunc(seen, func(id string) bool { return !strings.HasPrefix(id, key+"/") })
		testkit.Check(t, want < 0 && len(seen) == n/keys && slices.IsSortedFunc(seen, byNumber), "%s: %v", key, seen)
	}
	testkit.Check(t, h.most >= 4, "at most %d keys at the same time", h.most)
}

func number(id string) (n int) {
	_, after, _ := strings.Cut(id, "/")
	_, _ = fmt.Sscan(after, &n)
	return n
}

func byNumber(a, b string) int { return number(a) - number(b) }

// Promise P1: a key that is held up holds up no other, and nothing behind its first message is committed. What was
// acked behind it comes again after the end of the session, and the messages of each key in order.
func TestSlowLane(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const n, keys = 200, 10
	c.produce(keyed(n, keys)...)
	sub := c.subscriber(SubscriberConfig{InFlight: 4, settleGrace: 100 * time.Millisecond})
	h := newHistory()
	handle := func(messages <-chan *message.Message, slow string) {
		for msg := range messages {
			if key, _, _ := strings.Cut(msg.UUID, "/"); key != slow {
				h.begin(t, msg.UUID)
				h.end(msg.UUID, true)
				msg.Ack()
			}
		}
	}
	messages := c.subscribe(sub)
	go handle(messages, "key-3")
	c.eventually("all others are acked", func() bool { return h.count() == n-n/keys })
	c.eventually("what is in front is committed", func() bool { return c.committed() == 3 })
	testkit.NoError(t, sub.Close())
	if committed := c.committed(); committed != 3 {
		t.Errorf("%d are committed", committed)
	}
	h = newHistory()
	go handle(c.subscribe(c.subscriber(SubscriberConfig{InFlight: 4})), "")
	c.eventually("all are committed", func() bool { return c.committed() == n })
	if h.count() != n-3 {
		t.Errorf("%d came again", h.count())
	}
	for key, seen := range h.seen {
		testkit.Check(t, slices.IsSortedFunc(seen, byNumber), "%s: %v", key, seen)
	}
}

// Promise P1: instances join, leave, and are cut off from the broker. No message is lost, each instance handles one
// message of a key at a time, and the messages of a key succeed first in their order.
func TestLanesAcrossRebalances(t *testing.T) {
	t.Parallel()
	c := newPartitioned(t, 2)
	const n, keys = 600, 20
	records := keyed(n, keys)
	for i, record := range records {
		record.Partition = int32(i % keys % 2)
	}
	c.produce(records...)
	var mu sync.Mutex
	first := map[string][]string{} // by key, when they succeeded first
	known := map[string]bool{}
	var instances sync.WaitGroup
	join := func() *Subscriber {
		sub := c.subscriber(SubscriberConfig{InFlight: 8, nackBackoff: time.Millisecond, settleGrace: 100 * time.Millisecond})
		messages, h := c.subscribe(sub), newHistory()
		instances.Go(func() {
			for msg := range messages {
				instances.Go(func() {
					h.begin(t, msg.UUID)
					time.Sleep(8 * time.Millisecond)
					h.end(msg.UUID, true)
					key, _, _ := strings.Cut(msg.UUID, "/")
					mu.Lock()
					defer mu.Unlock()
					if msg.Ack() && !known[msg.UUID] {
						known[msg.UUID], first[key] = true, append(first[key], msg.UUID)
					}
				})
			}
		})
		return sub
	}
	reached := func(part int) {
		c.eventually(fmt.Sprintf("%d are handled", part), func() bool { mu.Lock(); defer mu.Unlock(); return len(known) >= part })
	}
	one := join()
	reached(n / 8)
	two := join()
	reached(n / 3)
	one.lock.Lock()
	for sub := range one.subscriptions {
		sub.connections.cut()
	}
	one.lock.Unlock()
	reached(n / 2)
	for _, sub := range []*Subscriber{one, two} {
		go func() { _ = sub.Close() }()
	}
	three := join()
	reached(n)
	testkit.NoError(t, three.Close())
	instances.Wait()
	for key, seen := range first {
		testkit.Check(t, slices.IsSortedFunc(seen, byNumber) && len(seen) == n/keys, "%s: %v", key, seen)
	}
}

// keyedGroup is a session whose records have these keys.
func keyedGroup(t *testing.T, keys string) *group {
	g := newGroup(t, len(keys))
	for i := range keys {
		record := <-g.records
		record.Key = []byte(keys[i : i+1])
		g.records <- record
	}
	return g
}

// lanesOf consumes records with these keys.
func lanesOf(t *testing.T, keys string, config SubscriberConfig, test func(deliveries)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g, s := keyedGroup(t, keys), subscriptionOf(t, config, true)
		ended := g.consume(s)
		test(deliveries{t, g, s})
		g.leave()
		if p := <-ended; p != nil {
			t.Error(p)
		}
	})
}

// Feature R15: a handler that acks, or nacks, before it has done its work holds up the next message of its key until
// the chain has returned.
func TestLaneEndsWithTheChain(t *testing.T) {
	for _, ack := range []bool{true, false} {
		lanesOf(t, "aa", SubscriberConfig{InFlight: 2}, func(d deliveries) {
			working, early := make(chan struct{}), true
			handler := chain.Enter()(func(msg *message.Message) ([]*message.Message, error) {
				if early {
					early = false
					if ack {
						msg.Ack()
					} else {
						msg.Nack()
					}
					<-working
				}
				msg.Ack()
				return nil, nil
			})
			first := d.next()
			go func() { _, _ = handler(first) }()
			d.none()
			close(working)
			second := d.next()
			if again := offsetOf(second) == offsetOf(first); again == ack {
				d.Errorf("acked %v, and then %d came", ack, offsetOf(second))
			}
			testkit.NoError(d, testkit.Err(handler(second)))
		})
	}
}

// Promise P1: what would come again is bounded, and so is what waits for its key.
func TestLanesAreBounded(t *testing.T) {
	lanesOf(t, "a"+strings.Repeat("b", maxInFlight+1), SubscriberConfig{InFlight: 2}, func(d deliveries) {
		first, second := d.next(), d.next()
		if keyOf(first) == "b" {
			first, second = second, first
		}
		second.Ack()
		for range maxInFlight - 1 {
			d.next().Ack()
		}
		d.none()
		first.Ack()
		d.next().Ack()
	})
	lanesOf(t, "aaaab", SubscriberConfig{InFlight: 2, maxPlacingBytes: 5}, func(d deliveries) { // two bytes each
		first := d.next()
		d.none() // b is behind those that wait, and there is no room
		first.Ack()
		for range 2 {
			d.next().Ack()
		}
		if keys := keyOf(d.next()) + keyOf(d.next()); keys != "ab" && keys != "ba" {
			d.Errorf("%s came", keys)
		}
	})
}

// The rate of one partition with handlers of 2.5 ms and 1,000 keys.
func BenchmarkLanes(b *testing.B) {
	for _, inFlight := range []int{1, 16} {
		b.Run(fmt.Sprint(inFlight), func(b *testing.B) {
			c := newCluster(b)
			n := 250 * inFlight
			for range b.N {
				testkit.NoError(b, c.producer.SendMessages(onTopic(c.topic, keyed(n, 1000))))
			}
			messages := c.subscribe(c.subscriber(SubscriberConfig{InFlight: inFlight}))
			var handling sync.WaitGroup
			handle := func(msg *message.Message) { time.Sleep(2500 * time.Microsecond); msg.Ack() }
			handle(<-messages) // the group has formed
			b.ResetTimer()
			for range b.N*n - 1 {
				msg := <-messages
				handling.Go(func() { handle(msg) })
			}
			handling.Wait()
			b.ReportMetric(float64(b.N*n-1)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

func onTopic(topic string, records []*sarama.ProducerMessage) []*sarama.ProducerMessage {
	for _, record := range records {
		record.Topic = topic
	}
	return records
}

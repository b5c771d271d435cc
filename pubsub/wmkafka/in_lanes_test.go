package wmkafka

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/observe"
)

// keyed are n records of so many keys, with ids "key/number".
func keyed(n, keys int) (records []*sarama.ProducerMessage) {
	for i := range n {
		key := fmt.Sprint("key-", i%keys)
		records = append(records, identified(fmt.Sprintf("%s/%d", key, i)))
		records[i].Key, records[i].Value = sarama.StringEncoder(key), sarama.StringEncoder("payload")
	}
	return records
}

// history is what the handlers of a topic saw, by key.
type history struct {
	mu   sync.Mutex
	busy map[string]bool
	seen map[string][]string
}

func newHistory() *history { return &history{busy: map[string]bool{}, seen: map[string][]string{}} }

// handle is a handler that takes its time.
func (h *history) handle(t testing.TB, id string, takes time.Duration) {
	key, _, _ := strings.Cut(id, "/")
	h.mu.Lock()
	testkit.Check(t, !h.busy[key], "%s begins while another message of its key is handled", id)
	h.busy[key] = true
	h.mu.Unlock()
	time.Sleep(takes)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy[key] = false
	h.seen[key] = append(h.seen[key], id)
}

// inOrder fails unless the messages of each key were handled in their order.
func (h *history) inOrder(t testing.TB) {
	t.Helper()
	for key, seen := range h.seen {
		testkit.Check(t, slices.IsSortedFunc(seen, byNumber), "%s: %v", key, seen)
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

func number(id string) (n int) {
	_, after, _ := strings.Cut(id, "/")
	_, _ = fmt.Sscan(after, &n)
	return n
}

func byNumber(a, b string) int { return number(a) - number(b) }

// Promise P1: instances join, leave and are cut off: none is lost, and a key's succeed first in order, one by one.
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
					h.handle(t, msg.UUID, 8*time.Millisecond)
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

// lanesOf consumes records with these keys.
func lanesOf(t *testing.T, keys string, config SubscriberConfig, test func(deliveries)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, len(keys))
		for i := range keys {
			record := <-g.records
			record.Key = []byte(keys[i : i+1])
			g.records <- record
		}
		deliver(t, g, config, test)
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
			testkit.Check(d, (offsetOf(second) == offsetOf(first)) != ack,
				"acked %v, and then %d came", ack, offsetOf(second))
			testkit.NoError(d, testkit.Err(handler(second)))
		})
	}
}

// Feature R15: Key takes the place of the record's key. While it panics the partition waits.
func TestKeyOfAMessage(t *testing.T) {
	log, works := &testkit.Log{}, atomic.Bool{}
	key := func(*message.Message) string {
		if !works.Load() {
			panic("no such field")
		}
		return "one"
	}
	lanesOf(t, "abc", SubscriberConfig{InFlight: 4, Key: key, Shared: observe.Shared{Logger: log}}, func(d deliveries) {
		d.none()
		testkit.Check(d, len(log.Lines(watermill.ErrorLogLevel, "Key panicked")) > 0, "the panic is not in the log")
		works.Store(true)
		for i := range 3 {
			msg := d.next()
			testkit.Equal(d, "came", offsetOf(msg), int64(i))
			d.none() // it would come beside the first
			msg.Ack()
		}
	})
}

// Promises P1, P3: at its end all in flight have one grace; what is acked in it is marked, without a gap.
func TestLanesAtTheEnd(t *testing.T) {
	lanesOf(t, "abcdef", SubscriberConfig{InFlight: 6, settleGrace: time.Second}, func(d deliveries) {
		all := make([]*message.Message, 6)
		for range all {
			msg := d.next() // in any order
			all[offsetOf(msg)] = msg
		}
		testkit.Equal(d, "it may be held for", hold.MaxHold(all[0].Context(), 0), maxHold)
		all[3].Ack()
		d.end()
		synctest.Wait()
		for _, msg := range all {
			testkit.Check(d, msg.Context().Err() != nil,
				"the context of message %d outlived its session", offsetOf(msg))
		}
		time.Sleep(500 * time.Millisecond)
		all[0].Ack()
		all[1].Ack()
		all[4].Ack()
		time.Sleep(time.Second)
		synctest.Wait()
		testkit.Equal(d, "marked up to", slices.Max(append(d.group.marked, -1)), 1)
	})
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
		keys := keyOf(d.next()) + keyOf(d.next())
		testkit.Check(d, keys == "ab" || keys == "ba", "%s came", keys)
	})
}

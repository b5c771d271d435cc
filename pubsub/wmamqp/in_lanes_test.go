package wmamqp_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

var singleActive = amqp091.Table{amqp091.SingleActiveConsumerArg: true}

// keyOf is the part of an id before the dash.
func keyOf(msg *message.Message) string {
	key, _, _ := strings.Cut(msg.UUID, "-")
	return key
}

func keyed(n int) func(*wmamqp.SubscriberConfig) {
	return func(c *wmamqp.SubscriberConfig) {
		inFlight(n)(c)
		c.Key, c.AMQP.Queue.Arguments = keyOf, singleActive
	}
}

// sequences sends n messages of each of some keys, one key after the other.
func (b *broker) sequences(queue string, keys, n int) {
	b.Helper()
	for i := range n {
		for k := range keys {
			b.send(queue, amqp091.Publishing{MessageId: fmt.Sprintf("k%d-%02d", k, i)})
		}
	}
}

// journal is what handlers saw.
type journal struct {
	testing.TB
	mu    sync.Mutex
	busy  map[string]bool
	acked map[string][]string
	most  int
}

func newJournal(t testing.TB) *journal {
	return &journal{TB: t, busy: map[string]bool{}, acked: map[string][]string{}}
}

// handle takes messages until the channel is closed, each in a goroutine of its own.
func (j *journal) handle(messages <-chan *message.Message, settle func(*message.Message) bool) {
	for msg := range messages {
		go func() {
			key := keyOf(msg)
			j.mu.Lock()
			testkit.Check(j, !j.busy[key], "%s came while another one of its key was in a handler", msg.UUID)
			j.busy[key] = true
			running := 0
			for _, busy := range j.busy {
				if busy {
					running++
				}
			}
			j.most = max(j.most, running)
			j.mu.Unlock()
			ok := settle(msg)
			j.mu.Lock()
			j.busy[key] = false
			if ok {
				j.acked[key] = append(j.acked[key], msg.UUID)
			}
			j.mu.Unlock()
			if ok {
				msg.Ack()
			} else {
				msg.Nack()
			}
		}()
	}
}

// until waits until handlers have acked n messages.
func (j *journal) until(what string, n int) {
	j.Helper()
	eventually(j, what, func() bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		all := 0
		for _, acked := range j.acked {
			all += len(acked)
		}
		return all >= n
	})
}

// complete waits until n messages of each key were acked, and checks their order. Those that were acked while their
// channel was lost may come again, in order.
func (j *journal) complete(keys, n int) {
	j.Helper()
	distinct := func() (all int) {
		j.mu.Lock()
		defer j.mu.Unlock()
		for _, ids := range j.acked {
			seen := map[string]bool{}
			for _, id := range ids {
				seen[id] = true
			}
			all += len(seen)
		}
		return all
	}
	eventually(j, "all are acked", func() bool { return distinct() == keys*n })
	j.mu.Lock()
	defer j.mu.Unlock()
	for key, ids := range j.acked {
		last := ""
		seen := map[string]bool{}
		for _, id := range ids {
			testkit.Check(j, seen[id] || id >= last, "%s: %s came for the first time after %s", key, id, last)
			seen[id], last = true, max(last, id)
		}
	}
}

// Feature R15: the messages of a key are handled one at a time and in order, nacked ones too.
func TestLanesKeepOrder(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic, release := b.topic(), make(chan struct{})
	b.declareWith(topic, singleActive)
	b.sequences(topic, 20, 20)
	j, nacked := newJournal(t), sync.Map{}
	go j.handle(b.subscribe(b.subscriber(keyed(16), patient), topic), func(msg *message.Message) bool {
		if keyOf(msg) == "k0" {
			<-release
		}
		time.Sleep(2 * time.Millisecond)
		_, again := nacked.LoadOrStore(msg.UUID, true)
		return again || !strings.HasSuffix(msg.UUID, "7")
	})
	j.until("the other keys are done", 19*20)
	close(release)
	j.complete(20, 20)
	testkit.Check(t, j.most >= 8, "%d ran at the same time", j.most)
	eventually(t, "the queue is empty", func() bool { return b.ready(topic) == 0 })
}

// Features R15, P1: over a lost connection and a consumer that closes, each key stays in order and nothing is lost.
func TestLanesGoOnAfterTheConnectionAndTheConsumer(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic, p := b.topic(), b.proxy()
	b.declareWith(topic, singleActive)
	b.sequences(topic, 10, 40)
	j := newJournal(t)
	slow := func(msg *message.Message) bool {
		select {
		case <-time.After(5 * time.Millisecond):
			return true
		case <-msg.Context().Done():
			return false
		}
	}
	first := b.subscriber(keyed(16), func(c *wmamqp.SubscriberConfig) { c.AMQP.Connection.AmqpURI = p.uri })
	go j.handle(b.subscribe(first, topic), slow)
	j.until("some are handled", 20)
	p.Cut()
	p.Heal()
	go j.handle(b.subscribe(b.subscriber(keyed(16)), topic), slow)
	j.until("more are handled after the cut", 100)
	b.closed("the active one", first.Close())
	j.complete(10, 40)
}

// Feature R15: a queue that has no order is refused, with the reason, also one that a topology of the user declared.
func TestLanesAreRefusedWithoutAnOrder(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	says(t, testkit.Err(b.subscriber(keyed(2)).Subscribe(t.Context(), b.queue())), "SubscriberConfig.Key")
	own := func(c *wmamqp.SubscriberConfig) { c.AMQP.TopologyBuilder = plain{} }
	says(t, testkit.Err(b.subscriber(keyed(2), own).Subscribe(t.Context(), b.topic())), "AMQP.TopologyBuilder")
	for name, change := range map[string]func(*wmamqp.SubscriberConfig){
		"InFlight 1":               func(c *wmamqp.SubscriberConfig) { c.InFlight = 1 },
		"x-single-active-consumer": func(c *wmamqp.SubscriberConfig) { c.AMQP.Queue.Arguments = nil },
		"x-priority":               func(c *wmamqp.SubscriberConfig) { c.AMQP.Consume.Arguments = amqp091.Table{"x-priority": 1} },
		"x-max-priority":           limited("x-max-priority"),
		"x-delivery-limit":         limited("x-delivery-limit"),
		"x-delayed-retry-type": func(c *wmamqp.SubscriberConfig) {
			c.AMQP.Queue.Arguments = amqp091.Table{amqp091.SingleActiveConsumerArg: true, "x-delayed-retry-type": "all"}
		},
	} {
		config := wmamqp.SubscriberConfig{}
		keyed(2)(&config)
		change(&config)
		says(t, testkit.Err(wmamqp.NewSubscriber(b.uri, config)), name)
	}
}

func limited(argument string) func(*wmamqp.SubscriberConfig) {
	return func(c *wmamqp.SubscriberConfig) {
		c.AMQP.Queue.Arguments = amqp091.Table{amqp091.SingleActiveConsumerArg: true, argument: 5}
	}
}

// Feature R15, promise P1: a Key that panics loses nothing: the queue waits until it does no more.
func TestKeyPanics(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic, healthy := b.topic(), make(chan struct{})
	b.declareWith(topic, singleActive)
	b.sequences(topic, 3, 10)
	j := newJournal(t)
	go j.handle(b.subscribe(b.subscriber(keyed(4), func(c *wmamqp.SubscriberConfig) {
		c.Key = func(msg *message.Message) string {
			select {
			case <-healthy:
			default:
				if msg.UUID == "k1-05" {
					panic("no tenant")
				}
			}
			return keyOf(msg)
		}
	}), topic), func(*message.Message) bool { return true })
	time.Sleep(300 * time.Millisecond)
	close(healthy)
	j.complete(3, 10)
}

// Feature R15: messages that wait behind a slow one of their key go back before the broker's consumer_timeout.
func TestLanesStartAnewBeforeTheConsumerTimeout(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.topic()
	b.declareWith(topic, singleActive)
	b.sequences(topic, 3, 10)
	j := newJournal(t)
	var again atomic.Int32
	go j.handle(b.subscribe(b.subscriber(keyed(4), patient, func(c *wmamqp.SubscriberConfig) {
		c.MaxHold = 400 * time.Millisecond
	}), topic), func(msg *message.Message) bool {
		if counted, _ := wmamqp.Counts(msg); counted.Redelivered {
			again.Add(1)
		}
		if msg.UUID == "k0-00" {
			select {
			case <-time.After(500 * time.Millisecond):
			case <-msg.Context().Done():
				t.Error("the context of the handler that runs ended")
			}
		}
		return true
	})
	j.complete(3, 10)
	testkit.Equal(t, "came again, and 9 waited behind the slow one", again.Load(), 9)
}

// plain is a topology of a user's, which declares queues without arguments.
type plain struct{ *amqp.DefaultTopologyBuilder }

func (plain) BuildTopology(c *amqp091.Channel, queue, _ string, _ amqp.Config, _ watermill.LoggerAdapter) error {
	_, err := c.QueueDeclare(queue, true, false, false, false, nil)
	return err
}

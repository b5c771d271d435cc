package wmkafka

import (
	"context"

	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

// placed is an event.
type placed struct{ Number, Fails int64 }

// events are the events that a test handled, by their number.
type events struct {
	lock sync.Mutex
	done map[int64]int
}

func (e *events) handle(event *placed) {
	e.lock.Lock()
	defer e.lock.Unlock()
	if e.done == nil {
		e.done = map[int64]int{}
	}
	e.done[event.Number]++
}

func (e *events) distinct() int {
	e.lock.Lock()
	defer e.lock.Unlock()
	return len(e.done)
}

// Feature R17, promise P4: poison at the head of a partition holds up the messages behind it for a bounded time, with
// the breaker: 30 messages that a marshaler cannot read, 30 events of a type that a cqrs processor does
// not know, and 30 that fail with an error that nothing knows. Each of them is a letter, and the 10 messages behind
// them are handled.
func TestPoisonBeforeGoodMessages(t *testing.T) {
	t.Parallel()
	const bad, good = 30, 10
	marshaler := cqrs.JSONMarshaler{}
	processor := func(done *events) func(*testing.T, *message.Router, message.Subscriber, string) {
		return func(t *testing.T, router *message.Router, sub message.Subscriber, topic string) {
			p, err := cqrs.NewEventProcessorWithConfig(router, cqrs.EventProcessorConfig{
				GenerateSubscribeTopic: func(cqrs.EventProcessorGenerateSubscribeTopicParams) (string, error) { return topic, nil },
				SubscriberConstructor:  func(cqrs.EventProcessorSubscriberConstructorParams) (message.Subscriber, error) { return sub, nil },
				Marshaler:              marshaler,
			})
			if err == nil {
				err = p.AddHandlers(cqrs.NewEventHandler("billing", func(_ context.Context, event *placed) error {
					if event.Fails != 0 {
						return fmt.Errorf("event %d: no such order", event.Number)
					}
					done.handle(event)
					return nil
				}))
			}
			if err != nil {
				t.Error(err)
			}
		}
	}
	for name, row := range map[string]struct {
		spoil func(*sarama.ProducerMessage)
		class classify.Class
		guard breaker.Config
		opens bool
	}{
		"unreadable":   {func(m *sarama.ProducerMessage) { m.Value = sarama.StringEncoder("no JSON") }, classify.ClassInvalid, breaker.Config{}, false},
		"unknown type": {func(m *sarama.ProducerMessage) { m.Headers[1].Value = []byte("shop.Shipped") }, classify.ClassInvalid, breaker.Config{}, false},
		"unknown error": {func(m *sarama.ProducerMessage) {
			event, _ := marshaler.Marshal(&placed{Fails: 1})
			m.Value = sarama.ByteEncoder(event.Payload)
		}, classify.ClassUnknown, breaker.Config{Window: time.Second, Probe: 50 * time.Millisecond, Doubt: 3 * time.Second}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			for i := range bad + good {
				event, err := marshaler.Marshal(&placed{Number: int64(i)})
				if err != nil {
					t.Fatal(err)
				}
				record := &sarama.ProducerMessage{Value: sarama.ByteEncoder(event.Payload), Headers: []sarama.RecordHeader{
					header(kafka.UUIDHeaderKey, fmt.Sprint("id-", i)), header("name", event.Metadata.Get("name")),
				}}
				if i < bad {
					row.spoil(record)
				}
				c.produce(record)
			}
			var opened atomic.Int64
			row.guard.OnChange = func(change breaker.Change) {
				if change.To == breaker.Open && change.From == breaker.Closed {
					opened.Add(1)
				}
			}
			dead, done := &sink{}, &events{}
			ch := c.channel(spillway.Config{Publisher: dead, Outage: &row.guard,
				Retry: middleware.RetryConfig{Backoff: middleware.Backoff{Initial: 100 * time.Millisecond, Max: 200 * time.Millisecond}}})
			stop := testkit.RunRouter(t, watermill.NopLogger{}, func(router *message.Router) {
				ch.Attach(router)
				processor(done)(t, router, c.subscriber(SubscriberConfig{}), c.topic)
			})
			c.eventually("all good messages are handled", func() bool { return done.distinct() == good })
			c.eventually("all are committed", func() bool { return c.committed() == bad+good })
			letters := dead.letters(t)
			for _, letter := range letters {
				if letter.Failure.Class != row.class {
					t.Errorf("%+v", letter.Failure)
				}
			}
			if len(letters) != bad || opened.Load() > 0 != row.opens {
				t.Errorf("%d letters, and the guard opened %d times", len(letters), opened.Load())
			}
			stop()
		})
	}
}

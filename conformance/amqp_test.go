package conformance_test

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/conformance"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// pickyAMQP is a marshaler that cannot read everything.
type pickyAMQP struct{ wmamqp.Marshaler }

func (p pickyAMQP) Unmarshal(delivery amqp091.Delivery) (*message.Message, error) {
	if string(delivery.Body) == conformance.Unreadable {
		return nil, errors.New("no such schema")
	}
	return p.Marshaler.Unmarshal(delivery)
}

// The suite on RabbitMQ's classic and quorum queues, at the same time but for the row that restarts the broker.
func TestAMQP(t *testing.T) {
	t.Parallel()
	var beside sync.RWMutex
	t.Run("classic", func(t *testing.T) {
		t.Parallel()
		runAMQP(t, "amqp-classic", queueType("classic"), &beside, conformance.SecondColumn()...)
	})
	t.Run("quorum", func(t *testing.T) { t.Parallel(); runAMQP(t, "amqp-quorum", queueType("quorum"), &beside) })
}

func runAMQP(t *testing.T, name string, arguments amqp091.Table, beside *sync.RWMutex, only ...string) {
	b := amqpBroker{services.AMQP(t), arguments}
	at := testkit.Must(url.Parse(b.uri))
	through := func(address string) string {
		to := *at
		to.Host = address
		return to.String()
	}
	conformance.Run(t, conformance.Target{
		Name:       name,
		Only:       only,
		Publisher:  func(t testing.TB) message.Publisher { return b.publisher(t, b.uri, testkit.Patience) },
		Subscriber: func(t testing.TB, group string) message.Subscriber { return b.subscriber(t, group, b.uri) },
		Keyed:      b.keyed,
		Ordered:    b.keyed,
		Origin:     wmamqp.Origin,
		Backlog: func(t testing.TB, _ string) func(context.Context, string) (int, error) {
			sub := b.subscriber(t, "", b.uri)
			t.Cleanup(func() { _ = sub.Close() })
			return sub.Backlog
		},
		CreateTopic: b.createQueue,
		BadTopic:    "amq.not-for-you",
		Origins:     []string{poison.KeyOriginalRoutingKey, poison.KeyOriginalGroup},
		BrokersOwn:  []string{wmamqp.KeyHeaders},
		Pins:        map[string]string{"D9": "K18: no SQL source", "R12b": elsewhere, "H9/in topics": "K19: a client cannot list queues"},
		Hostile:     b.hostile(),
		Competing:   true,
		Resumed:     99, // one more is handled
		Beside:      beside,

		DeleteTopic: b.deleteQueue,
		ReadOnly:    b.readOnly,
		Restart:     func(t testing.TB) { services.Restart(t, "rabbitmq") },
		Address:     at.Host,
		Through: func(t testing.TB, address string) message.Publisher {
			return b.publisher(t, through(address), 2*time.Second)
		},
		SubscriberThrough: func(t testing.TB, group, address string) message.Subscriber {
			return b.subscriber(t, group, through(address))
		},
	})
}

// hostile are messages that stop watermill-amqp's own marshaler for good.
func (b amqpBroker) hostile() []conformance.Hostile {
	send := func(publishing amqp091.Publishing) func(testing.TB, string) {
		return func(t testing.TB, topic string) {
			publishing := publishing
			publishing.Body = []byte(`{"n":1}`)
			publishing.MessageId = "hostile"
			b.send(t, topic, publishing)
		}
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	// again is the message as it would be sent: metadata shows no types and no properties.
	again := func(check func(amqp091.Publishing) bool) func(testing.TB, *message.Message) {
		return func(t testing.TB, msg *message.Message) {
			if publishing, err := (wmamqp.Marshaler{}).Marshal(msg); err != nil || !check(publishing) {
				t.Errorf("came back as %+v: %v", publishing, err)
			}
		}
	}
	return []conformance.Hostile{
		{Name: "headers of every type", Publish: send(amqp091.Publishing{Headers: amqp091.Table{
			"bool": true, "byte": byte(7), "int8": int8(-7), "int16": int16(-300), "int32": int32(70000), "int64": int64(1) << 40,
			"float32": float32(1.5), "float64": 2.5, "decimal": amqp091.Decimal{Scale: 2, Value: 1234}, "string": "text",
			"binary string": "\xff\x00", "bytes": []byte{0, 255}, "time": at, "nothing": nil,
			"table": amqp091.Table{"n": int32(1), "deep": amqp091.Table{"list": []any{"a", int64(2), true}}}, "list": []any{int32(1), "two"},
		}}), Check: again(func(p amqp091.Publishing) bool {
			return p.Headers["bool"] == true && p.Headers["int8"] == int8(-7) && p.Headers["decimal"] == amqp091.Decimal{Scale: 2, Value: 1234} &&
				p.Headers["table"].(amqp091.Table)["n"] == int32(1)
		})},
		{Name: "x-death", Publish: send(amqp091.Publishing{Headers: amqp091.Table{
			"x-death": []any{amqp091.Table{
				"count": int64(3), "exchange": "", "queue": "elsewhere", "reason": "expired", "time": at, "routing-keys": []any{"elsewhere"},
			}},
		}})},
		{Name: "every property", Publish: send(amqp091.Publishing{
			ContentType: "application/json", ContentEncoding: "identity", CorrelationId: "c", ReplyTo: "r", Priority: 3, Timestamp: at, Type: "t", AppId: "a",
		}), Check: again(func(p amqp091.Publishing) bool {
			return p.ContentType == "application/json" && p.CorrelationId == "c" && p.ReplyTo == "r" && p.Priority == 3 && p.Timestamp.Equal(at)
		})},
		{Name: "a message the marshaler refuses", Publish: func(t testing.TB, topic string) {
			b.send(t, topic, amqp091.Publishing{MessageId: "hostile", Body: []byte(conformance.Unreadable)})
		}, Check: func(t testing.TB, msg *message.Message) {
			testkit.Check(t, string(msg.Payload) == conformance.Unreadable, "set aside with payload %q", msg.Payload)
		}},
	}
}

// amqpBroker is RabbitMQ as the suite's target sees it, with queues of one type.
type amqpBroker struct {
	uri       string
	arguments amqp091.Table
}

func queueType(name string) amqp091.Table { return amqp091.Table{amqp091.QueueTypeArg: name} }

func (b amqpBroker) config(uri string) amqp.Config {
	config := amqp.NewDurableQueueConfig(uri)
	config.Queue.Arguments = b.arguments
	return config
}

func (b amqpBroker) publisher(t testing.TB, uri string, confirmTimeout time.Duration) *wmamqp.Publisher {
	t.Helper()
	return testkit.Must(
		wmamqp.NewPublisher(uri, wmamqp.PublisherConfig{AMQP: b.config(uri), ConfirmTimeout: confirmTimeout}))
}

func (b amqpBroker) subscriber(t testing.TB, group, uri string) *wmamqp.Subscriber {
	t.Helper()
	config := wmamqp.SubscriberConfig{AMQP: b.config(uri)}
	config.AMQP.Marshaler = pickyAMQP{}
	if strings.Contains(group, ".retry") { // a stage's
		config.InFlight = 8
	}
	sub := testkit.Must(wmamqp.NewSubscriber(uri, config))
	// A router that closes cancels its handlers' contexts too, and of a handler that sees that first leaves the
	// subscriber open.
	t.Cleanup(func() { _ = sub.Close() })
	return sub
}

// do does something on a connection of its own, because the broker may have been restarted.
func (b amqpBroker) do(t testing.TB, f func(*amqp091.Channel) error) {
	t.Helper()
	conn := testkit.Must(amqp091.Dial(b.uri))
	defer func() { _ = conn.Close() }()
	testkit.NoError(t, f(testkit.Must(conn.Channel())))
}

func (b amqpBroker) createQueue(t testing.TB, topic string) { b.declare(t, topic, nil) }

func (b amqpBroker) declare(t testing.TB, topic string, more amqp091.Table) {
	t.Helper()
	arguments := maps.Clone(more)
	if arguments == nil {
		arguments = amqp091.Table{}
	}
	maps.Copy(arguments, b.arguments)
	b.do(t, func(c *amqp091.Channel) error {
		_, err := c.QueueDeclare(topic, true, false, false, false, arguments)
		return err
	})
	t.Cleanup(func() { b.deleteQueue(t, topic) })
}

func (b amqpBroker) deleteQueue(t testing.TB, topic string) {
	t.Helper()
	b.do(t, func(c *amqp091.Channel) error {
		_, err := c.QueueDelete(topic, false, false, false)
		return err
	})
}

// send publishes as a foreign program would.
func (b amqpBroker) send(t testing.TB, topic string, publishing amqp091.Publishing) {
	t.Helper()
	b.do(t, func(c *amqp091.Channel) error {
		return c.PublishWithContext(context.Background(), "", topic, true, false, publishing)
	})
}

// readOnly makes a queue that is full and refuses what comes then. A policy would need RabbitMQ's own tools.
func (b amqpBroker) readOnly(t testing.TB, topic string) (writable func()) {
	t.Helper()
	const filler, room = "filler", 10
	b.declare(t, topic, amqp091.Table{amqp091.QueueMaxLenArg: room, amqp091.QueueOverflowArg: amqp091.QueueOverflowRejectPublish})
	full := 0
	b.do(t, func(c *amqp091.Channel) error {
		if err := c.Confirm(false); err != nil {
			return err
		}
		for refused := 0; refused < 3; { // a quorum queue refuses a little late
			confirm, err := c.PublishWithDeferredConfirmWithContext(context.Background(), "", topic, true, false, amqp091.Publishing{Type: filler})
			if err != nil {
				return err
			}
			if confirm.Wait() {
				full++
			} else {
				refused++
			}
		}
		return nil
	})
	return func() {
		b.do(t, func(c *amqp091.Channel) error {
			for range full {
				d, _, err := c.Get(topic, true)
				if err != nil {
					return err
				}
				testkit.Check(t, d.Type == filler, "a letter came into the full queue")
			}
			return nil
		})
	}
}

// keyed uses a queue of its own with a single active consumer, which the publisher declares.
func (b amqpBroker) keyed(t testing.TB, _ string) (message.Publisher, message.Subscriber) {
	config := b.config(b.uri)
	config.Queue.Arguments = amqp091.Table{amqp091.SingleActiveConsumerArg: true,
		amqp091.QueueTypeArg: amqp091.QueueTypeClassic}
	config.Queue.GenerateName = func(topic string) string { return topic + ".keyed" }
	config.Publish.GenerateRoutingKey = config.Queue.GenerateName
	pub := testkit.Must(wmamqp.NewPublisher(b.uri, wmamqp.PublisherConfig{AMQP: config}))
	sub := testkit.Must(wmamqp.NewSubscriber(b.uri, wmamqp.SubscriberConfig{AMQP: config, InFlight: 16,
		Key: func(msg *message.Message) string { return msg.Metadata.Get("tenant") }}))
	t.Cleanup(func() { _ = sub.Close() })
	return declaring{pub}, sub
}

// declaring declares the queue of what it publishes.
type declaring struct{ *wmamqp.Publisher }

func (p declaring) Publish(topic string, messages ...*message.Message) error {
	if err := p.InitializeTopics(topic); err != nil {
		return err
	}
	return p.Publisher.Publish(topic, messages...)
}

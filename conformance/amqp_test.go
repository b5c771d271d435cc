package conformance_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/conformance"
	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/poison/wmamqp"
)

// pickyAMQP is a marshaler that cannot read everything.
type pickyAMQP struct{ wmamqp.Marshaler }

func (p pickyAMQP) Unmarshal(delivery amqp091.Delivery) (*message.Message, error) {
	if string(delivery.Body) == conformance.Unreadable {
		return nil, errors.New("no such schema")
	}
	return p.Marshaler.Unmarshal(delivery)
}

// The suite on RabbitMQ's classic queues.
func TestAMQPClassic(t *testing.T) { runAMQP(t, "amqp-classic", nil) }

// The suite on RabbitMQ's quorum queues.
func TestAMQPQuorum(t *testing.T) { runAMQP(t, "amqp-quorum", wmamqp.QuorumQueue(nil)) }

func runAMQP(t *testing.T, name string, arguments amqp091.Table) {
	uri := services.AMQP(t)
	config := func() amqp.Config {
		config := amqp.NewDurableQueueConfig(uri)
		config.Queue.Arguments = arguments
		return config
	}
	conn, err := amqp091.Dial(uri)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}()
	subscriber := func(t testing.TB) *wmamqp.Subscriber {
		c := wmamqp.SubscriberConfig{AMQP: config()}
		c.AMQP.Marshaler = pickyAMQP{}
		sub, err := wmamqp.NewSubscriber(c)
		if err != nil {
			t.Fatal(err)
		}
		return sub
	}
	queueType := "classic"
	if arguments != nil {
		queueType = "quorum"
	}
	b := amqpBroker{conn, arguments}
	conformance.Run(t, conformance.Target{
		Name: name,
		Publisher: func(t testing.TB) message.Publisher {
			pub, err := wmamqp.NewPublisher(wmamqp.PublisherConfig{AMQP: config(), QueueType: queueType})
			if err != nil {
				t.Fatal(err)
			}
			return pub
		},
		Subscriber: func(t testing.TB, _ string) message.Subscriber { return subscriber(t) },
		Origin:     wmamqp.Origin,
		Backlog: func(t testing.TB, _ string) func(context.Context, string) (int, error) {
			sub := subscriber(t)
			t.Cleanup(func() { _ = sub.Close() })
			return sub.Backlog
		},
		CreateTopic: b.createQueue,
		BadTopic:    "amq.not-for-you",
		Origins:     []string{poison.KeyOriginalRoutingKey, poison.KeyOriginalGroup},
		BrokersOwn:  []string{"x-delivery-count", wmamqp.KeyHeaders}, // of quorum queues, and its type
		Hostile:     b.hostile(),
	})
}

type amqpBroker struct {
	conn      *amqp091.Connection
	arguments amqp091.Table
}

func (b amqpBroker) channel(t testing.TB) *amqp091.Channel {
	t.Helper()
	channel, err := b.conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = channel.Close() })
	return channel
}

func (b amqpBroker) createQueue(t testing.TB, topic string) {
	t.Helper()
	channel := b.channel(t)
	if _, err := channel.QueueDeclare(topic, true, false, false, false, b.arguments); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = channel.QueueDelete(topic, false, false, false) })
}

// hostile are messages that stop watermill-amqp's own marshaler for good.
func (b amqpBroker) hostile() []conformance.Hostile {
	send := func(publishing amqp091.Publishing) func(testing.TB, string) {
		return func(t testing.TB, topic string) {
			publishing := publishing
			publishing.Body = []byte(`{"n":1}`)
			publishing.MessageId = "hostile"
			if err := b.channel(t).PublishWithContext(context.Background(), "", topic, true, false, publishing); err != nil {
				t.Fatal(err)
			}
		}
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return []conformance.Hostile{
		{Name: "headers of every type", Publish: send(amqp091.Publishing{Headers: amqp091.Table{
			"bool": true, "byte": byte(7), "int8": int8(-7), "int16": int16(-300), "int32": int32(70000), "int64": int64(1) << 40,
			"float32": float32(1.5), "float64": 2.5, "decimal": amqp091.Decimal{Scale: 2, Value: 1234}, "string": "text",
			"binary string": "\xff\x00", "bytes": []byte{0, 255}, "time": at, "nothing": nil,
			"table": amqp091.Table{"n": int32(1), "deep": amqp091.Table{"list": []any{"a", int64(2), true}}}, "list": []any{int32(1), "two"},
		}})},
		{Name: "x-death", Publish: send(amqp091.Publishing{Headers: amqp091.Table{
			"x-death": []any{amqp091.Table{
				"count": int64(3), "exchange": "", "queue": "elsewhere", "reason": "expired", "time": at, "routing-keys": []any{"elsewhere"},
			}},
		}})},
		{Name: "every property", Publish: send(amqp091.Publishing{
			ContentType: "application/json", ContentEncoding: "identity", CorrelationId: "c", ReplyTo: "r", Priority: 3, Timestamp: at, Type: "t", AppId: "a",
		})},
		{Name: "a message the marshaler refuses", Publish: func(t testing.TB, topic string) {
			err := b.channel(t).PublishWithContext(context.Background(), "", topic, true, false,
				amqp091.Publishing{MessageId: "hostile", Body: []byte(conformance.Unreadable)})
			if err != nil {
				t.Fatal(err)
			}
		}, Check: func(t testing.TB, msg *message.Message) {
			if string(msg.Payload) != conformance.Unreadable {
				t.Errorf("set aside with payload %q", msg.Payload)
			}
		}},
	}
}

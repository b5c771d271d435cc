package conformance_test

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"testing"
	"time"

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
		GoesOn:      99, // one more is handled
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

package wmamqp_test

import (
	"errors"
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// Promise P2, features D1 and V1: a message with everything AMQP has goes through the dead-letter queue and back, and
// is then what its producer sent, with our keys beside; its x-death too. It arrives in no queue but its own: the CC of
// its producer routes it once. It never expires on the way.
func TestRedriveRoundTrip(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			topic := b.queue(kind)
			copies := topic + ".other"
			b.declare(copies)
			sent := amqp091.Publishing{
				Headers: everyType(), Body: []byte("\x00body\xff"), ContentType: "application/json", ContentEncoding: "gzip", Priority: 3,
				CorrelationId: "corr", ReplyTo: "answers", MessageId: "m-1", Timestamp: time.Unix(1700000000, 0), Type: "order.placed", AppId: "shop",
				UserId: "spillway", Expiration: "600000", DeliveryMode: amqp091.Transient,
			}
			sent.Headers["_watermill_message_uuid"] = "an id \xff of more than 36 characters, it is"
			sent.Headers["CC"] = []any{copies}
			b.send(topic, sent)
			b.get(copies)

			dead := b.publisher()
			var handled list
			var redriven message.Message
			b.run(topic, b.subscriber(), dead, poison.QueueConfig{}, func(msg *message.Message) error {
				if handled.add(msg.UUID); len(handled.get()) == 1 {
					msg.Nack() // so that a quorum queue counts
					return nil
				} else if len(handled.get()) == 2 {
					return classify.Permanent(errors.New("failed"))
				}
				redriven = message.Message{UUID: msg.UUID, Metadata: maps.Clone(msg.Metadata), Payload: msg.Payload}
				handled.add("done")
				return nil
			})
			testkit.NoError(t, dead.InitializeTopics(topic+".dlq"))
			eventually(t, "the letter", func() bool { return b.ready(topic+".dlq") == 1 })
			if report := b.drain(topic+".dlq", topic); report.Redriven != 1 {
				t.Fatalf("%+v", report)
			}
			eventually(t, "it is handled again", func() bool { return len(handled.get()) == 4 })
			if redriven.UUID != sent.Headers["_watermill_message_uuid"] || string(redriven.Payload) != string(sent.Body) || redriven.Metadata[poison.KeyRedriveCount] != "1" {
				t.Errorf("%q %q %v", redriven.UUID, redriven.Payload, redriven.Metadata)
			}
			// What a foreign consumer would get.
			redriven.Metadata = poison.Inside().ProducerMetadata(redriven.Metadata)
			got := write(t, wmamqp.Marshaler{}, &redriven)
			want := sent
			want.Headers = maps.Clone(sent.Headers)
			delete(want.Headers, "CC")
			want.Headers["x-spillway-literal-CC"] = []any{copies}
			want.UserId, want.Expiration, want.DeliveryMode = "", "", amqp091.Persistent
			if !reflect.DeepEqual(got, want) {
				t.Errorf("\n%#v\nis not\n%#v", got, want)
			}
			if n := b.ready(copies); n != 0 {
				t.Errorf("%d more copies by CC", n)
			}
		})
	}
}

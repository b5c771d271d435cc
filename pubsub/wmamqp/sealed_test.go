package wmamqp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/seal"
	"github.com/watermill-spillway/spillway/settings"
)

func sealer(t testing.TB, key string) *seal.Sealer {
	t.Helper()
	keys, err := seal.ParseKeyring(testkit.Keyring(key))
	if err != nil {
		t.Fatal(err)
	}
	s, err := seal.New(keys)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Feature D14: in the dead-letter queue nothing of a sealed message is clear. A drain without its key parks it as it
// is. A drain with the key redrives it byte for byte.
func TestSealed(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.queue()
	const secret, person = "card 4111111111111111 \x00\xff", "Ada Lovelace"
	dead, sub := b.publisher(), b.subscriber()
	if err := dead.InitializeTopics(topic + ".dlq"); err != nil {
		t.Fatal(err)
	}
	redriven := make(chan *message.Message, 10)
	b.run(topic, sub, dead, poison.QueueConfig{Shared: settings.Shared{Seal: sealer(t, "first")}}, func(msg *message.Message) error {
		if msg.Metadata[poison.KeyRedriveCount] == "" {
			return classify.Permanent(errors.New("failed"))
		}
		redriven <- &message.Message{UUID: msg.UUID, Metadata: maps.Clone(msg.Metadata), Payload: msg.Payload}
		return nil
	})
	var why error // the last letter is parked
	hooks := redrive.Hooks{OnParked: func(_ context.Context, _ poison.Letter, err error) { why = err }}
	drain := func(key string) redrive.Report {
		t.Helper()
		eventually(t, "the letter is in the queue", func() bool { return b.ready(topic+".dlq") == 1 })
		report, err := redrive.DrainTopic(context.Background(), sub, dead, redrive.DrainTopicConfig{
			Rules: redrive.Rules{Allow: []string{topic}, Shared: settings.Shared{Seal: sealer(t, key)}, Hooks: hooks}, Park: dead, Topic: topic + ".dlq", Backlog: sub.Backlog,
		})
		if err != nil || report.Taken != 1 {
			t.Fatalf("%+v, %v", report, err)
		}
		return report
	}
	again := func(d amqp091.Delivery) { // as it was
		b.send(topic+".dlq", amqp091.Publishing{
			Headers: d.Headers, Body: d.Body, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode, Priority: d.Priority,
			CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, MessageId: d.MessageId, Timestamp: d.Timestamp, Type: d.Type, AppId: d.AppId,
		})
	}

	sent := amqp091.Publishing{MessageId: "m-1", Body: []byte(secret), Headers: amqp091.Table{"_watermill_message_uuid": "id-1", "customer": person}}
	b.send(topic, sent)
	raw := b.get(topic + ".dlq")
	if all := fmt.Sprintf("%s %+v", raw.Body, raw); strings.Contains(all, "4111111111111111") || strings.Contains(all, person) || !bytes.Contains(raw.Body, []byte("first")) {
		t.Errorf("the dead-letter queue shows %q", all)
	}
	again(raw)
	if report := drain("lost"); report.Sealed != 1 || report.Redriven != 0 || !errors.Is(why, seal.ErrUnknownKey) || !strings.Contains(why.Error(), `"first"`) {
		t.Errorf("without the key: %+v, %v", report, why)
	}
	parked := b.get(topic + ".dlq.parked")
	if !bytes.Equal(parked.Body, raw.Body) || b.ready(topic+".dlq") != 0 {
		t.Errorf("parked %q, was %q", parked.Body, raw.Body)
	}
	again(parked)
	if report := drain("first"); report.Redriven != 1 || report.Sealed != 0 {
		t.Errorf("with the key: %+v", report)
	}
	select {
	case msg := <-redriven:
		if msg.UUID != "id-1" || string(msg.Payload) != secret || msg.Metadata["customer"] != person {
			t.Errorf("redriven: %q %q %v", msg.UUID, msg.Payload, msg.Metadata)
		}
		msg.Metadata = poison.Inside().ProducerMetadata(msg.Metadata)
		got, err := wmamqp.Marshaler{}.Marshal(msg)
		if err != nil || string(got.Body) != secret || got.MessageId != "m-1" || len(got.Headers) != 2 {
			t.Errorf("redriven as %+v, %v", got, err)
		}
	case <-time.After(patience):
		t.Fatal("it was not redriven")
	}
}

package wmamqp_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
	"github.com/watermill-spillway/spillway/seal"
	"github.com/watermill-spillway/spillway/settings"
)

func sealer(t testing.TB, key string) *seal.Sealer {
	t.Helper()
	return testkit.Must(seal.New(testkit.Must(seal.ParseKeyring(testkit.Keyring(key)))))
}

// Feature D14: in the dead-letter queue nothing of a sealed message is clear, and what opens it has it byte for byte,
// with its properties and types.
func TestSealed(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	topic := b.queue()
	const secret, person = "card 4111111111111111 \x00\xff", "Ada Lovelace"
	dead, keys := b.publisher(), sealer(t, "first")
	testkit.NoError(t, dead.InitializeTopics(topic+".dlq"))
	b.run(topic, b.subscriber(), dead, poison.QueueConfig{Shared: settings.Shared{Seal: keys}},
		func(*message.Message) error { return classify.Permanent(errors.New("failed")) })
	b.send(topic, amqp091.Publishing{MessageId: "m-1", CorrelationId: person, Body: []byte(secret), Headers: amqp091.Table{
		"_watermill_message_uuid": "id-1", "customer": person, "n": int32(4111),
	}})
	raw := b.get(topic + ".dlq")
	delete(raw.Headers, "x-delivery-count")
	all := fmt.Sprintf("%s %+v", raw.Body, raw)
	testkit.Check(t, !strings.Contains(all, "4111") && !strings.Contains(all, person) &&
		bytes.Contains(raw.Body, []byte("first")), "the dead-letter queue shows %q", all)
	letter := testkit.Must(poison.Decode(read(t, wmamqp.Marshaler{}, raw)))
	testkit.Is(t, testkit.Err(letter.Open(t.Context(), sealer(t, "lost"))), seal.ErrUnknownKey)
	opened := testkit.Must(letter.Open(t.Context(), keys))
	got := write(t, wmamqp.Marshaler{}, opened.Original)
	testkit.Check(t, opened.Original.UUID == "id-1" && string(got.Body) == secret && got.MessageId == "m-1" &&
		got.CorrelationId == person && got.Headers["customer"] == person && got.Headers["n"] == int32(4111) &&
		len(got.Headers) == 3, "opened %q as %+v", opened.Original.UUID, got)
}

package wmamqp_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// FuzzCarried puts anything where a carried value belongs. Feature D8: it neither panics nor forges: no header that the
// metadata does not have, none whose text is another, nothing that routes, expires or names a user, and what is written
// can be read and written again, the same.
func FuzzCarried(f *testing.F) {
	d := delivery(everyType(), "")
	d.MessageId, d.Priority = "m", 3
	msg, _ := wmamqp.Marshaler{}.Unmarshal(d)
	f.Add(msg.Metadata[wmamqp.KeyHeaders], "n", "1", "")
	for _, headers := range []amqp091.Table{
		{"n": int32(1)}, {"CC": []any{"orders"}}, {wmamqp.KeyHeaders: int8(1)}, {"_watermill_message_uuid": int64(5)}, {"x-delivery-count": int64(1)},
	} {
		msg, _ := wmamqp.Marshaler{}.Unmarshal(delivery(headers, ""))
		f.Add(msg.Metadata[wmamqp.KeyHeaders], "CC", "[\"orders\"]", msg.UUID)
	}
	forged, _ := wmamqp.Marshaler{}.Unmarshal(amqp091.Delivery{ConsumerTag: "c", MessageId: "id", ReplyTo: directReplyTo})
	f.Add(forged.Metadata[wmamqp.KeyHeaders], strings.Repeat("n", 256), "v", "id")
	f.Add(base64.RawStdEncoding.EncodeToString(append([]byte{2}, make([]byte, 32)...)), "", "", "id")
	f.Add("not base64", "x-delivery-count", "1", "id")
	f.Fuzz(func(t *testing.T, carried, key, value, id string) {
		msg := message.NewMessageWithContext(chain.Returning(t.Context()), id, nil) // so that it is believed
		msg.Metadata[key] = value
		msg.Metadata[wmamqp.KeyHeaders] = carried
		p := testkit.Must(wmamqp.Marshaler{}.Marshal(msg))
		testkit.Require(t, len(p.Headers) <= 4 && p.ReplyTo != directReplyTo && p.Expiration == "" && p.UserId == "" &&
			p.Headers["CC"] == nil && p.Headers["BCC"] == nil, "forged: %#v", p)
		testkit.NoError(t, p.Headers.Validate())
		again := testkit.Must(wmamqp.Marshaler{}.Unmarshal(amqp091.Delivery{Headers: p.Headers, DeliveryTag: 1, MessageId: p.MessageId}))
		testkit.Require(t, len(key) <= 255 || again.Metadata[key] == value,
			"a name of %d bytes: %q, not %q", len(key), again.Metadata[key], value)
		if _, dropped := p.Headers[key]; dropped && key != wmamqp.KeyHeaders && key != "_watermill_message_uuid" && again.Metadata[key] != value {
			t.Fatalf("%q is %q, not %q", key, again.Metadata[key], value)
		}
		testkit.Require(t, id == "" || again.UUID == id, "id %q became %q", id, again.UUID)
	})
}

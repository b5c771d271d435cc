package wmamqp_test

import (
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/deadletter"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// everyType is a table with every type of AMQP that the client reads.
func everyType() amqp091.Table {
	return amqp091.Table{
		"bool": true, "uint8": uint8(200), "int8": int8(-8), "int16": int16(-1600), "int32": int32(-32), "int64": int64(1) << 60,
		"float32": float32(1.5), "float64": math.Pi, "decimal": amqp091.Decimal{Scale: 2, Value: -12345}, "string": "text",
		"no-utf8": "\xff\xfe\x00", "bytes": []byte("abc"), "raw": []byte{0xff, 0}, "no-bytes": []byte{}, "time": time.Unix(1700000000, 0), "void": nil,
		"table": amqp091.Table{"n": int32(1), "deep": amqp091.Table{"t": time.Unix(5, 0), "x": []any{nil, "s", int64(2)}}},
		"array": []any{int8(1), "two", amqp091.Table{"three": 3.0}},
		"x-death": []any{amqp091.Table{
			"count": int64(2), "reason": "rejected", "queue": "orders", "time": time.Unix(1700000000, 0), "exchange": "", "routing-keys": []any{"orders"},
		}},
	}
}

func delivery(headers amqp091.Table, body string) amqp091.Delivery {
	return amqp091.Delivery{Headers: headers, Body: []byte(body), DeliveryTag: 1, ConsumerTag: "c"}
}

func read(t testing.TB, m wmamqp.Marshaler, d amqp091.Delivery) *message.Message {
	t.Helper()
	msg := testkit.Must(m.Unmarshal(d))
	return msg
}

func write(t testing.TB, m wmamqp.Marshaler, msg *message.Message) amqp091.Publishing {
	t.Helper()
	p := testkit.Must(m.Marshal(msg))
	return p
}

// Feature D8: a header of any type is readable text.
func TestHeadersAreReadable(t *testing.T) {
	msg := read(t, wmamqp.Marshaler{}, delivery(everyType(), ""))
	for key, want := range map[string]string{
		"bool": "true", "uint8": "200", "int8": "-8", "int16": "-1600", "int32": "-32", "int64": "1152921504606846976", "float32": "1.5",
		"float64": "3.141592653589793", "decimal": "-123.45", "string": "text", "no-utf8": "\xff\xfe\x00", "bytes": "abc", "raw": "/wA=", "no-bytes": "",
		"time": "2023-11-14T22:13:20Z", "void": "", "table": `{"deep":{"t":"1970-01-01T00:00:05Z","x":[null,"s",2]},"n":1}`, "array": `[1,"two",{"three":3}]`,
		"x-death": `[{"count":2,"exchange":"","queue":"orders","reason":"rejected","routing-keys":["orders"],"time":"2023-11-14T22:13:20Z"}]`,
	} {
		got, ok := msg.Metadata[key]
		testkit.Check(t, ok && got == want, "%s is %q, not %q", key, got, want)
	}
}

// Feature D8, promise P2: headers of any type, properties and id come back as they were; the expiration, the user and
// the broker's count of deliveries do not, and delivery is persistent.
func TestRoundTrip(t *testing.T) {
	d := delivery(everyType(), "body")
	d.Headers["_watermill_message_uuid"] = "id\xff"
	d.Headers["x-delivery-count"] = int64(3)
	d.ContentType, d.ContentEncoding, d.CorrelationId, d.ReplyTo, d.Priority = "application/json", "gzip", "corr", "answers", 7
	d.MessageId, d.Timestamp, d.Type, d.AppId = "m-1", time.Unix(1700000001, 0), "order.placed", "shop"
	d.Expiration, d.UserId, d.DeliveryMode = "1000", "guest", amqp091.Transient

	msg := read(t, wmamqp.Marshaler{}, d)
	testkit.Check(t, msg.UUID == "id\xff" && msg.Metadata["x-delivery-count"] == "3",
		"id %q, %v", msg.UUID, msg.Metadata)
	got := write(t, wmamqp.Marshaler{}, msg)
	delete(d.Headers, "x-delivery-count")
	want := amqp091.Publishing{
		Headers: d.Headers, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: amqp091.Persistent, Priority: 7,
		CorrelationId: "corr", ReplyTo: "answers", MessageId: "m-1", Timestamp: d.Timestamp, Type: "order.placed", AppId: "shop", Body: []byte("body"),
	}
	testkit.Check(t, reflect.DeepEqual(got, want), "\n%#v\nis not\n%#v", got, want)
}

// Promise P2: what a handler changed is a string; the types of other headers stay, and another message has none of the
// properties.
func TestChangedMetadataIsText(t *testing.T) {
	d := delivery(amqp091.Table{"a": int32(1), "b": int32(2), "c": int32(3)}, "")
	d.MessageId, d.ReplyTo = "m-1", "answers"
	msg := read(t, wmamqp.Marshaler{}, d)
	msg.Metadata["a"] = "one"
	delete(msg.Metadata, "c")
	p := write(t, wmamqp.Marshaler{}, msg)
	testkit.Check(t, p.Headers["a"] == "one" && p.Headers["b"] == int32(2) && len(p.Headers) == 3 &&
		p.ReplyTo == "answers", "%#v", p)
	output := message.NewMessage("another", nil) // of a handler that passes metadata on
	output.Metadata = msg.Metadata
	if p := write(t, wmamqp.Marshaler{}, output); p.MessageId != "" || p.ReplyTo != "" || p.Headers["b"] != int32(2) {
		t.Errorf("%#v", p)
	}
}

// Feature R10: the id, wherever it is and whatever it is.
func TestID(t *testing.T) {
	for name, row := range map[string]struct {
		header    any
		messageID string
		want      string
	}{
		"header": {"h", "m", "h"}, "property": {nil, "m", "m"}, "empty header": {"", "m", "m"}, "number": {int64(7), "m", "7"},
		"table": {amqp091.Table{"n": int8(1)}, "", `{"n":1}`}, "none": {nil, "", ""}, "bytes": {"\x00\xff", "", "\x00\xff"},
	} {
		t.Run(name, func(t *testing.T) {
			d := delivery(amqp091.Table{}, "")
			if d.MessageId = row.messageID; row.header != nil {
				d.Headers["_watermill_message_uuid"] = row.header
			}
			msg := read(t, wmamqp.Marshaler{}, d)
			testkit.Check(t, msg.UUID == row.want && len(msg.Metadata) <= 1,
				"id %q, metadata %v", msg.UUID, msg.Metadata)
			p := write(t, wmamqp.Marshaler{}, msg)
			again := read(t, wmamqp.Marshaler{}, delivery(p.Headers, ""))
			testkit.Check(t, again.UUID == row.want && p.MessageId == row.messageID,
				"id %q, message id %q", again.UUID, p.MessageId)
			if row.header != nil && row.header != "" && !reflect.DeepEqual(p.Headers["_watermill_message_uuid"], row.header) {
				t.Errorf("the header is %#v", p.Headers["_watermill_message_uuid"])
			}
		})
	}
	msg := message.NewMessage("mine", nil)
	own := wmamqp.Marshaler{IDHeader: "id"}
	if p := write(t, own, msg); p.Headers["id"] != "mine" || read(t, own, delivery(p.Headers, "")).UUID != "mine" {
		t.Errorf("%#v", p.Headers)
	}
}

type inner struct {
	amqp.DefaultMarshaler
	unmarshal func() (*message.Message, error)
}

func (i inner) Unmarshal(amqp091.Delivery) (*message.Message, error) { return i.unmarshal() }

// Feature D8: what an application's marshaler cannot read is marked, with the body as it came.
func TestInnerThatFails(t *testing.T) {
	for name, f := range map[string]func() (*message.Message, error){
		"error": func() (*message.Message, error) { return nil, errors.New("no protobuf") },
		"panic": func() (*message.Message, error) { panic("no protobuf") },
		"nil":   func() (*message.Message, error) { return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			msg := read(t, wmamqp.Marshaler{Inner: inner{unmarshal: f}}, delivery(amqp091.Table{"n": int32(1), "_watermill_message_uuid": "id"}, "raw"))
			err := deadletter.Marked(msg.Metadata[deadletter.KeyMarked])
			testkit.Check(t, err != nil, "not marked")
			testkit.Check(t, string(msg.Payload) == "raw" && msg.UUID == "id" && msg.Metadata["n"] == "1",
				"%q %q %v", msg.Payload, msg.UUID, msg.Metadata)
		})
	}
	fine := inner{unmarshal: func() (*message.Message, error) { return &message.Message{UUID: "own"}, nil }}
	msg := read(t, wmamqp.Marshaler{Inner: fine}, delivery(nil, "x"))
	testkit.Check(t, deadletter.Marked(msg.Metadata[deadletter.KeyMarked]) == nil && msg.UUID == "own" &&
		msg.Acked() != nil, "%#v", msg)
	p := write(t, wmamqp.Marshaler{Inner: amqp.DefaultMarshaler{NotPersistentDeliveryMode: true}}, msg)
	testkit.Check(t, p.DeliveryMode == amqp091.Persistent, "not persistent")
}

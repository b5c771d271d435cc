package wmamqp_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/deadletter"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
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
	d.Headers["x-delivery-count"], d.Headers["x-acquired-count"] = int64(3), int64(4)
	d.ContentType, d.ContentEncoding, d.CorrelationId, d.ReplyTo, d.Priority = "application/json", "gzip", "corr", "answers", 7
	d.MessageId, d.Timestamp, d.Type, d.AppId = "m-1", time.Unix(1700000001, 0), "order.placed", "shop"
	d.Expiration, d.UserId, d.DeliveryMode = "1000", "guest", amqp091.Transient

	msg := read(t, wmamqp.Marshaler{}, d)
	testkit.Check(t, msg.UUID == "id\xff" && msg.Metadata["x-delivery-count"]+msg.Metadata["x-acquired-count"] == "",
		"id %q, %v", msg.UUID, msg.Metadata)
	msg.Metadata["_watermill_amqp_redelivered"] = "true" // by watermill-amqp's own subscriber
	got := write(t, wmamqp.Marshaler{}, msg)
	delete(d.Headers, "x-delivery-count")
	delete(d.Headers, "x-acquired-count")
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

// Decision 5: metadata with a name that means something else as a header is carried aside and restored.
func TestReservedNames(t *testing.T) {
	msg := message.NewMessage("id", nil)
	for _, name := range []string{"_watermill_message_uuid", "CC", "BCC", "x-spillway-literal-CC", "x-spillway-literal-x-spillway-literal-_watermill_message_uuid", "x-spillway-literal-other"} {
		msg.Metadata[name] = "of " + name
	}
	p := write(t, wmamqp.Marshaler{}, msg)
	_, routed := p.Headers["CC"]
	testkit.Check(t, !routed && p.Headers["_watermill_message_uuid"] == "id", "%v", p.Headers)
	if again := read(t, wmamqp.Marshaler{}, delivery(p.Headers, "")); !again.Equals(msg) {
		t.Errorf("%v is not %v", again.Metadata, msg.Metadata)
	}

	// A producer's own header of the name that carries, and of the names that route.
	d := delivery(amqp091.Table{wmamqp.KeyHeaders: "junk", "CC": []any{"a", "b"}, "n": int8(1)}, "")
	p = write(t, wmamqp.Marshaler{}, read(t, wmamqp.Marshaler{}, d))
	want := amqp091.Table{wmamqp.KeyHeaders: "junk", "x-spillway-literal-CC": []any{"a", "b"}, "n": int8(1), "_watermill_message_uuid": ""}
	testkit.Check(t, reflect.DeepEqual(p.Headers, want), "%#v", p.Headers)
	if again := read(t, wmamqp.Marshaler{}, delivery(p.Headers, "")); again.Metadata["CC"] != `["a","b"]` {
		t.Errorf("%v", again.Metadata)
	}
}

// Feature D8: a carried value that this process did not write is believed only in what Spillway publishes itself.
func TestForgedCarriedValue(t *testing.T) {
	headers := amqp091.Table{"n": int32(1), wmamqp.KeyHeaders: "own"}
	d := delivery(headers, "")
	d.MessageId, d.ReplyTo, d.Priority = "id", "thief", 9
	ours := read(t, wmamqp.Marshaler{}, d)
	raw := testkit.Must(base64.RawStdEncoding.DecodeString(ours.Metadata[wmamqp.KeyHeaders]))
	raw[len(raw)-1] ^= 1 // as another process, or a forger, seals it
	forged := ours.Copy()
	forged.Metadata[wmamqp.KeyHeaders] = base64.RawStdEncoding.EncodeToString(raw)

	p := write(t, wmamqp.Marshaler{}, forged)
	want := (amqp091.Table{"n": "1", "_watermill_message_uuid": "id"})
	testkit.Check(t, reflect.DeepEqual(p.Headers, want) && p.ReplyTo == "" && p.Priority == 0 && p.MessageId == "",
		"believed: %#v", p)
	passedOn := write(t, wmamqp.Marshaler{}, ours.Copy()) // a handler's copy has another context
	forged.SetContext(chain.Returning(t.Context()))
	for name, p := range map[string]amqp091.Publishing{"passed on": passedOn, "on its way back": write(t, wmamqp.Marshaler{}, forged)} {
		testkit.Check(t, p.Headers["n"] == int32(1) && p.Headers[wmamqp.KeyHeaders] == "own" && p.ReplyTo == "thief" &&
			p.Priority == 9 && p.MessageId == "id", "%s: %#v", name, p)
	}
}

// Bad input: what is no carried value changes nothing but is kept as the metadata it is; a name that is too long is an
// error, and so is a delivery that is none.
func TestHostileMetadata(t *testing.T) {
	good := read(t, wmamqp.Marshaler{}, delivery(amqp091.Table{"n": int32(1)}, "")).Metadata[wmamqp.KeyHeaders]
	raw, _ := base64.RawStdEncoding.DecodeString(good)
	for name, value := range map[string]string{
		"text": "hello", "empty": "", "cut": base64.RawStdEncoding.EncodeToString(raw[:len(raw)-1]), "longer": base64.RawStdEncoding.EncodeToString(append(raw, 0)),
		"version": base64.RawStdEncoding.EncodeToString(append([]byte{9}, raw[1:]...)), "huge": strings.Repeat("A", 2<<20),
		"deep": base64.RawStdEncoding.EncodeToString(append(append([]byte{2}, make([]byte, 12)...), bytes.Repeat([]byte{0, 0, 1, 0, 1, 'k', 'F'}, 10_000)...)),
	} {
		msg := message.NewMessage("id", nil)
		msg.Metadata = message.Metadata{"n": "1", wmamqp.KeyHeaders: value}
		p := write(t, wmamqp.Marshaler{}, msg)
		testkit.Check(t, p.Headers["n"] == "1" && p.Headers[wmamqp.KeyHeaders] == value && p.MessageId == "",
			"%s: %.200v", name, p.Headers)
	}
	long := message.NewMessage("id", nil)
	long.Metadata[strings.Repeat("k", 256)] = "v"
	back := read(t, wmamqp.Marshaler{}, delivery(write(t, wmamqp.Marshaler{}, long).Headers, ""))
	testkit.Check(t, reflect.DeepEqual(back.Metadata, long.Metadata), "a name of 256 bytes: %v", back.Metadata)
	if _, err := (wmamqp.Marshaler{}).Marshal(nil); err == nil {
		t.Error("a nil message")
	}
	if _, err := (wmamqp.Marshaler{}).Unmarshal(amqp091.Delivery{}); err == nil {
		t.Error("a zero delivery is read as a message")
	}
}

// Feature D8: whatever is carried, it neither panics nor forges a header, and comes back the same when written again.
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

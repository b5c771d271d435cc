package wmamqp_test

import (
	"bytes"
	"encoding/base64"
	"reflect"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

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

// Feature D8: a carried value that this process did not write is believed only in what Spillway itself publishes. A
// producer on another broker who chooses the id cannot give an output types, properties or a header that nothing in the
// metadata shows.
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
	if want := (amqp091.Table{"n": "1", "_watermill_message_uuid": "id"}); !reflect.DeepEqual(p.Headers, want) || p.ReplyTo != "" || p.Priority != 0 || p.MessageId != "" {
		t.Errorf("believed: %#v", p)
	}
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

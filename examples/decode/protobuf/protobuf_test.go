package protobuf_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/watermill-spillway/spillway/examples/decode/protobuf"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// described is what protoc writes of
//
//	syntax = "proto3"; package shop;
//	message Order { int32 a = 1; string b = 2; Order part = 3; map<string, int64> counts = 4; }
const described = `file { name: "shop.proto" package: "shop" syntax: "proto3" message_type { name: "Order"
	field { name: "a" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL json_name: "a" }
	field { name: "b" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL json_name: "b" }
	field { name: "part" number: 3 type: TYPE_MESSAGE type_name: ".shop.Order" label: LABEL_OPTIONAL json_name: "part" }
	field { name: "counts" number: 4 type: TYPE_MESSAGE type_name: ".shop.Order.CountsEntry" label: LABEL_REPEATED json_name: "counts" }
	nested_type { name: "CountsEntry" options { map_entry: true }
		field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL json_name: "key" }
		field { name: "value" number: 2 type: TYPE_INT64 label: LABEL_OPTIONAL json_name: "value" } } } }`

func set(t *testing.T) []byte {
	var files descriptorpb.FileDescriptorSet
	testkit.NoError(t, prototext.Unmarshal([]byte(described), &files))
	return testkit.Must(proto.Marshal(&files))
}

func letter(topic, payload string) (l letters.Letter) {
	l.Original, l.Origin.Topic = message.NewMessage("1", []byte(payload)), topic
	return l
}

// specified are the two messages of protobuf's own description of its encoding, one within the other.
const specified = "\x08\x96\x01" + "\x12\x07testing" + "\x1a\x03\x08\x96\x01"

// Feature V17: protobuf is shown as JSON, and what was edited is protobuf again.
func TestDecoder(t *testing.T) {
	d := testkit.Must(protobuf.New(set(t), map[string]string{"orders": "shop.Order"}))
	text, mediaType, err := d.Decode(t.Context(), letter("orders", specified))
	testkit.Check(t, err == nil && mediaType == "application/json" &&
		text == "{\n  \"a\": 150,\n  \"b\": \"testing\",\n  \"part\": {\n    \"a\": 150\n  }\n}", "%q %s %v", text, mediaType, err)
	same, err := d.Encode(t.Context(), letter("orders", specified), text)
	testkit.Check(t, err == nil && string(same) == specified, "%q %v", same, err)
	edited, err := d.Encode(t.Context(), letter("orders", specified), `{"a":1,"counts":{"y":"90071992547409931","x":2}}`)
	testkit.Check(t, err == nil && string(edited) == "\x08\x01"+"\x22\x05\x0a\x01x\x10\x02"+"\x22\x0d\x0a\x01y\x10\x8b\x80\x80\x80\x80\x80\x80\xa0\x01", "%q %v", edited, err)
	for says, typed := range map[string]string{"unknown field": `{"c":1}`, "invalid value": `{"a":"x"}`, "unexpected EOF": `{`} {
		_, err := d.Encode(t.Context(), letter("orders", specified), typed)
		testkit.Check(t, err != nil && strings.Contains(err.Error(), says), "%s: %v", typed, err)
	}
	text, mediaType, err = d.Decode(t.Context(), letter("refunds", specified))
	testkit.Check(t, text+mediaType == "" && err == nil, "another topic: %q %q %v", text, mediaType, err)
	_, err = protobuf.New(set(t), map[string]string{"orders": "shop.Refund"})
	testkit.Check(t, err != nil && strings.Contains(err.Error(), `no message "shop.Refund", of topic "orders"`), "%v", err)
}

// Feature V17: bytes of an enemy are an error, and what the descriptors do not know is not lost by an edit.
func TestHostile(t *testing.T) {
	d := testkit.Must(protobuf.New(set(t), map[string]string{"orders": "shop.Order"}))
	deep := ""
	for range 200 {
		deep = "\x1a" + string(binary.AppendUvarint(nil, uint64(len(deep)))) + deep
	}
	for name, payload := range map[string]string{
		"cut": specified[:5], "no tag": "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "longer than all": "\x12\xff\xff\xff\x7fx",
		"no UTF-8": "\x12\x01\xff", "a group without end": strings.Repeat("\x2b", 10_000), "deep": deep,
	} {
		text, _, err := d.Decode(t.Context(), letter("orders", payload))
		testkit.Check(t, err != nil, "%s: %.100q", name, text)
	}
	for _, payload := range []string{specified + "\x28\x01", "\x1a\x02\x28\x01"} {
		_, _, err := d.Decode(t.Context(), letter("orders", payload))
		testkit.NoError(t, err)
		_, err = d.Encode(t.Context(), letter("orders", payload), `{"a":1}`)
		testkit.Check(t, err != nil && strings.Contains(err.Error(), "they would be lost"), "%q: %v", payload, err)
	}
}

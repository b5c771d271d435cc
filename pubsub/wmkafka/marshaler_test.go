package wmkafka

import (
	"bytes"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/deadletter"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/poison"
)

const id = kafka.UUIDHeaderKey

// Feature D1, R10, promise P2: a record comes back from its dead-letter topic as it was: key, headers, id, value. So it
// does when it becomes a dead letter again.
func TestRecordSurvives(t *testing.T) {
	for name, record := range hardRecords {
		t.Run(name, func(t *testing.T) {
			once := thereAndBack(t, Marshaler{}, record)
			if got, want := text(withoutOurs(once)), text(record); got != want {
				t.Errorf("it came back as\n%s, was\n%s", got, want)
			}
			twice := thereAndBack(t, Marshaler{}, once)
			if got, want := text(withoutOurs(twice)), text(record); got != want {
				t.Errorf("the second time it came back as\n%s, was\n%s", got, want)
			}
		})
	}
}

// Promise P2: the same for any record.
func TestRecordSurvivesProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		bytesOrNil := rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 0, 6), rapid.Just([]byte(nil)))
		names := rapid.OneOf(rapid.SampledFrom([]string{"a", "b", id, reservedPrefix + id, ""}), rapid.String())
		record := &sarama.ConsumerMessage{Key: bytesOrNil.Draw(rt, "key"), Value: bytesOrNil.Draw(rt, "value")}
		hasID := false
		for range rapid.IntRange(0, 25).Draw(rt, "headers") {
			h := &sarama.RecordHeader{Key: []byte(names.Draw(rt, "name")), Value: bytesOrNil.Draw(rt, "content")}
			if string(h.Key) == id {
				if hasID || len(h.Value) == 0 { // an empty id is no id, and of two the last counts
					continue
				}
				hasID = true
			}
			if len(poison.Inside().ProducerMetadata(message.Metadata{string(h.Key): ""})) == 1 {
				record.Headers = append(record.Headers, h)
			}
		}
		if got, want := text(withoutOurs(thereAndBack(t, Marshaler{}, record))), text(record); got != want {
			rt.Fatalf("it came back as\n%s, was\n%s", got, want)
		}
	})
}

// Promise P2: any message survives being a record.
func TestMessageSurvivesProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		names := rapid.OneOf(rapid.SampledFrom([]string{id, reservedPrefix + id, reservedPrefix + reservedPrefix + id, KeyRecord, "a"}), rapid.String())
		msg := message.NewMessage(rapid.String().Draw(rt, "id"), rapid.SliceOf(rapid.Byte()).Draw(rt, "payload"))
		msg.Metadata = rapid.MapOf(names, rapid.String()).Draw(rt, "metadata")
		for _, m := range []Marshaler{{}, {Inner: kafka.DefaultMarshaler{}}} {
			got := unmarshal(t, m, marshal(t, m, "orders", msg))
			if got.UUID != msg.UUID || !bytes.Equal(got.Payload, msg.Payload) || !maps.Equal(got.Metadata, msg.Metadata) {
				rt.Fatalf("it came back as %q %v %q", got.UUID, got.Metadata, got.Payload)
			}
		}
	})
}

// What the metadata says wins over what was carried along: of headers that were changed, removed or added meanwhile.
func TestChangedMetadataWins(t *testing.T) {
	msg := unmarshal(t, Marshaler{}, &sarama.ConsumerMessage{Headers: headers("kept", "1", "kept", "2", "changed", "1", "changed", "2", "removed", "1", "removed", "2")})
	msg.SetContext(&recordContext{Context: t.Context(), record: &sarama.ConsumerMessage{}})
	msg.Metadata["changed"] = "masked"
	delete(msg.Metadata, "removed")
	msg.Metadata["added"] = "x"
	got := text(marshal(t, Marshaler{}, "orders", msg))
	if want := `key null value null "added"="x" "changed"="masked" "kept"="1","2"`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Bad input: what another program wrote under our key is metadata like any other, and costs nothing.
func TestHostileCarrier(t *testing.T) {
	for _, forged := range []string{
		"", "AQ", "AQA=", "AgA", "AQH", "AQE!", "AQQ", "AQL/////////////AQ", "AQIA", "AQICYQ", "AQAC", "AQACYQ",
		strings.Repeat("A", 1<<20), "AQD" + strings.Repeat("/", 100), "\x00\xff",
	} {
		msg := message.NewMessage("id", nil)
		msg.Metadata = message.Metadata{KeyRecord: forged, poison.KeyRedriveCount: "1", "a": "b"}
		if c, ok := carriedBy(msg); ok && (c.key != nil || c.headers != nil) {
			t.Errorf("%.20q reads as %+v", forged, c)
		}
		record := marshal(t, Marshaler{}, "orders", msg)
		if record.Key != nil || len(record.Headers) < 3 {
			t.Errorf("%.20q: %.200s", forged, text(record))
		}
	}
}

// Decision 15: the key is the original's for what Spillway publishes of what comes from a topic and returns, and for a
// letter in a topic of letters. What a handler produces has Inner's, whatever it passed on of its input's metadata: the
// producer of that would choose whose record is overwritten in a compacted topic.
func TestWhoseKey(t *testing.T) {
	inner := kafka.NewWithPartitioningMarshaler(func(string, *message.Message) (string, error) { return "inner", nil })
	plain := Marshaler{Naming: naming.Scheme{Names: map[string]string{"orders.dlq": "poison"}}}
	keyed := Marshaler{Inner: inner, Naming: plain.Naming}
	letter, redriven, staged := poison.KeyFailureClass, poison.KeyRedriveCount, poison.KeyRetryStage
	for name, row := range map[string]struct {
		topic    string
		ours     bool // Spillway publishes it
		metadata message.Metadata
		plain    string
		inner    string
	}{
		"no story":                 {"orders", true, message.Metadata{}, "null", `"inner"`},
		"forwarded origin":         {"orders", true, message.Metadata{poison.KeyOriginalKey: "key"}, "null", `"inner"`},
		"letter":                   {"orders.dlq", false, message.Metadata{letter: "permanent", poison.KeyOriginalKey: "key"}, `"key"`, `"key"`},
		"letter elsewhere":         {"orders-dead", true, message.Metadata{letter: "permanent", poison.KeyOriginalKey: "key"}, `"key"`, `"key"`},
		"letter, binary":           {"orders.dlq", false, message.Metadata{letter: "permanent", poison.KeyOriginalKey + "-b64": "AP8="}, `"\x00\xff"`, `"\x00\xff"`},
		"letter, no key":           {"orders.dlq", false, message.Metadata{letter: "permanent"}, "null", `"inner"`},
		"letter, bad base64":       {"orders.dlq", false, message.Metadata{letter: "permanent", poison.KeyOriginalKey + "-b64": "?"}, "null", `"inner"`},
		"letter, key of 1 MiB":     {"orders.dlq", false, message.Metadata{letter: "permanent", poison.KeyOriginalKey: strings.Repeat("x", 1<<20)}, "null", `"inner"`},
		"in a stage":               {"orders.retry.5s", false, message.Metadata{letter: "transient", staged: "1", poison.KeyOriginalKey: "key"}, `"key"`, `"key"`},
		"in a stage elsewhere":     {"later", true, message.Metadata{staged: "1", poison.KeyOriginalKey: "key"}, `"key"`, `"key"`},
		"redriven home":            {"orders", true, message.Metadata{redriven: "1", poison.KeyOriginalTopic: "orders", poison.KeyOriginalKey: "key"}, `"key"`, `"key"`},
		"redriven elsewhere":       {"other", true, message.Metadata{redriven: "1", poison.KeyOriginalTopic: "orders", poison.KeyOriginalKey: "key"}, `"key"`, `"inner"`},
		"letter of Watermill's":    {"poison", false, message.Metadata{"reason_poisoned": "x", poison.KeyOriginalKey: "key"}, `"key"`, `"key"`},
		"carried key, no story":    {"orders", true, message.Metadata{KeyRecord: "AQIB"}, "null", `"inner"`},
		"carried key, redriven":    {"orders", true, message.Metadata{KeyRecord: "AQIB", redriven: "1", poison.KeyOriginalTopic: "orders"}, `""`, `""`},
		"metadata before carrying": {"orders", true, message.Metadata{KeyRecord: "AQIB", letter: "x", poison.KeyOriginalKey: "key"}, `"key"`, `"key"`},

		"output with a letter's keys":    {"invoices", false, message.Metadata{letter: "permanent", poison.KeyOriginalKey: "theirs"}, "null", `"inner"`},
		"output that waits for a retry":  {"invoices", false, message.Metadata{staged: "1", poison.KeyOriginalKey: "theirs"}, "null", `"inner"`},
		"output that comes back home":    {"invoices", false, message.Metadata{redriven: "1", poison.KeyOriginalTopic: "invoices", poison.KeyOriginalKey: "theirs"}, "null", `"inner"`},
		"output with a carried key":      {"invoices", false, message.Metadata{letter: "permanent", KeyRecord: "AQIB"}, "null", `"inner"`},
		"output of Watermill's letters":  {"invoices", false, message.Metadata{"reason_poisoned": "x", poison.KeyOriginalKey: "theirs"}, "null", `"inner"`},
		"output with Spring Kafka's key": {"invoices", false, message.Metadata{"kafka_dlt-original-topic": "invoices", "kafka_dlt-exception-fqcn": "x", poison.KeyOriginalKey: "theirs"}, "null", `"inner"`},
	} {
		msg := message.NewMessage("id", nil)
		msg.Metadata = row.metadata
		if row.ours {
			msg.SetContext(chain.Returning(t.Context()))
		}
		for m, want := range map[*Marshaler]string{&plain: row.plain, &keyed: row.inner} {
			if got := text(marshal(t, *m, row.topic, msg)); !strings.HasPrefix(got, "key "+want+" ") {
				t.Errorf("%s: %.200s, want %s", name, got, want)
			}
		}
	}
	dashes := Marshaler{Naming: naming.Scheme{Style: naming.Dashes}}
	msg := message.NewMessage("id", nil)
	msg.Metadata = message.Metadata{letter: "permanent", poison.KeyOriginalKey: "key"}
	for topic, want := range map[string]bool{"orders.dlq": false, "orders-dlq": true, "orders--billing-retry-5s": true, "orders-dlq-parked": true} {
		if got := marshal(t, dashes, topic, msg); (got.Key != nil) != want {
			t.Errorf("%s: key %q", topic, got.Key)
		}
	}
}

// Decision 15: KeyRecord is our subscriber's word or nothing. A producer's header of that name is not read, and
// metadata that another broker's message brought adds no headers to an output.
func TestForgedCarrier(t *testing.T) {
	forged := carried{headers: []sarama.RecordHeader{header("tenant", "evil"), header("tenant", "blue")}}.encode()
	for name, m := range map[string]Marshaler{"plain": {}, "inner": {Inner: kafka.DefaultMarshaler{}}} {
		msg := unmarshal(t, m, &sarama.ConsumerMessage{Headers: headers(KeyRecord, forged, "a", "b")})
		testkit.Check(t, !has(msg, KeyRecord) && msg.Metadata["a"] == "b", "%s: read %v", name, msg.Metadata)
		out := message.NewMessage("id", nil)
		out.Metadata = message.Metadata{KeyRecord: forged, "tenant": "blue"}
		if got := text(marshal(t, m, "invoices", out)); !strings.HasSuffix(got, `"tenant"="blue"`) {
			t.Errorf("%s: written as %s", name, got)
		}
	}
}

// Promise P4: a letter that Inner refuses is written as watermill-kafka writes it; an output is refused.
func TestLetterThatInnerRefuses(t *testing.T) {
	for name, inner := range map[string]bad{"refuses": {err: errBad}, "panics": {panics: true}, "returns nothing": {}} {
		msg := poison.Letter{Original: message.NewMessage("1", []byte("a")), Origin: poison.Origin{Key: []byte("key")}}.Encode()
		record, err := Marshaler{Inner: inner}.Marshal("orders.dlq", msg)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := consumed(t, record); string(got.Key) != "key" || string(got.Value) != "a" {
			t.Errorf("%s: %s", name, text(got))
		}
	}
}

// A queue that was not given Origin does not write the key, but the letter's context still knows it.
func TestKeyOfContext(t *testing.T) {
	msg := message.NewMessage("id", nil)
	msg.Metadata = message.Metadata{poison.KeyFailureClass: "permanent"}
	msg.SetContext(&recordContext{Context: t.Context(), record: &sarama.ConsumerMessage{Key: []byte("key")}})
	if got := marshal(t, Marshaler{}, "orders.dlq", msg); string(got.Key) != "key" {
		t.Errorf("key %q", got.Key)
	}
	msg.Metadata = message.Metadata{}
	if got := marshal(t, Marshaler{}, "invoices", msg); got.Key != nil {
		t.Errorf("an output has key %q", got.Key)
	}
}

// Bad input: messages without anything, and an Inner that panics, refuses or returns nothing.
func TestMarshalBadInput(t *testing.T) {
	if _, err := (Marshaler{}).Marshal("orders", nil); err == nil || !strings.HasPrefix(err.Error(), "wmkafka: ") {
		t.Error(err)
	}
	testkit.NoError(t, testkit.Err((Marshaler{}).Marshal("orders", &message.Message{})))
	for name, inner := range map[string]bad{"refuses": {err: errBad}, "panics": {panics: true}, "returns nothing": {}} {
		if _, err := (Marshaler{Inner: inner}).Marshal("orders", message.NewMessage("id", nil)); err == nil || !strings.Contains(err.Error(), "bad") && name != "returns nothing" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

var errBad = errors.New("bad")

// bad is a format that nothing is of.
type bad struct {
	err    error
	panics bool
}

func (b bad) Marshal(string, *message.Message) (*sarama.ProducerMessage, error) {
	if b.panics {
		panic(errBad)
	}
	return nil, b.err
}

func (b bad) Unmarshal(*sarama.ConsumerMessage) (*message.Message, error) {
	_, err := b.Marshal("", nil)
	return nil, err
}

// Feature D8: what Inner cannot read is no error but a message that says so, with the record's bytes, headers and id;
// and it comes back from the dead-letter topic as it was, without Inner having a say.
func TestUnreadableRecord(t *testing.T) {
	for name, inner := range map[string]bad{"refuses": {err: errBad}, "panics": {panics: true}, "returns nothing": {}} {
		for what, record := range hardRecords {
			m := Marshaler{Inner: inner}
			msg := unmarshal(t, m, record)
			err := deadletter.Marked(msg.Metadata[deadletter.KeyMarked])
			if err == nil || !bytes.Equal(msg.Payload, record.Value) || name != "returns nothing" && !strings.Contains(err.Error(), "bad") {
				t.Fatalf("%s, %s: %v, payload %q", name, what, err, msg.Payload)
			}
			if got, want := text(withoutOurs(thereAndBack(t, m, record))), text(record); got != want {
				t.Errorf("%s, %s: it came back as\n%s, was\n%s", name, what, got, want)
			}
		}
	}
}

// A message that its unmarshaler did not make with NewMessage can be acked all the same.
func TestBareMessage(t *testing.T) {
	msg := read(bare{}, &sarama.ConsumerMessage{Value: []byte("value")})
	testkit.Check(t, msg.Acked() != nil && msg.UUID == "bare" && string(msg.Payload) == "value", "%+v", msg)
}

type bare struct{}

func (bare) Unmarshal(record *sarama.ConsumerMessage) (*message.Message, error) {
	return &message.Message{UUID: "bare", Payload: record.Value}, nil
}

// What is not needed is not carried, and what is too much is not carried by halves.
func TestCarriesLittle(t *testing.T) {
	if msg := unmarshal(t, Marshaler{}, hardRecords["ordinary"]); len(msg.Metadata) != 1 {
		t.Errorf("an ordinary record has metadata %v", msg.Metadata)
	}
	much := strings.Repeat("x", maxCarried/2)
	msg := unmarshal(t, Marshaler{}, &sarama.ConsumerMessage{Headers: headers("via", much, "via", much, "via", "last")})
	if msg.Metadata["via"] != "last" || has(msg, KeyRecord) {
		t.Errorf("carried %d bytes", len(msg.Metadata[KeyRecord]))
	}
}

func FuzzCarried(f *testing.F) {
	f.Add("AQIB")
	f.Add("AQACYQJiAmEA")
	f.Fuzz(func(t *testing.T, value string) {
		msg := message.NewMessage("id", nil)
		msg.Metadata = message.Metadata{KeyRecord: value}
		c, ok := carriedBy(msg)
		if !ok {
			return
		}
		msg.Metadata[KeyRecord] = c.encode()
		again, ok := carriedBy(msg)
		if len(c.headers) > 0 && (!ok || len(again.headers) != len(c.headers)) || !bytes.Equal(again.key, c.key) {
			t.Errorf("%q reads as %+v and again as %+v", value, c, again)
		}
	})
}

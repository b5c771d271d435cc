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
	"github.com/watermill-spillway/spillway/internal/chain/deadletter"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/poison"
)

const id = kafka.UUIDHeaderKey

// Feature D1, R10, promise P2: a record comes back from its dead-letter topic as it was: key, headers, id, value.
func TestRecordSurvives(t *testing.T) {
	for name, record := range hardRecords {
		t.Run(name, func(t *testing.T) {
			once := thereAndBack(t, Marshaler{}, record)
			testkit.Equal(t, "back", text(withoutOurs(once)), text(record))
			testkit.Equal(t, "back the second time", text(withoutOurs(thereAndBack(t, Marshaler{}, once))),
				text(record))
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
			if len(inside.Poison.ProducerMetadata(message.Metadata{string(h.Key): ""})) == 1 {
				record.Headers = append(record.Headers, h)
			}
		}
		got, want := text(withoutOurs(thereAndBack(t, Marshaler{}, record))), text(record)
		testkit.Require(rt, got == want, "it came back as\n%s, was\n%s", got, want)
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
			testkit.Require(rt, got.UUID == msg.UUID && bytes.Equal(got.Payload, msg.Payload) && maps.Equal(got.Metadata, msg.Metadata),
				"it came back as %q %v %q", got.UUID, got.Metadata, got.Payload)
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
	testkit.Equal(t, "record", text(marshal(t, Marshaler{}, "orders", msg)),
		`key null value null "added"="x" "changed"="masked" "kept"="1","2"`)
}

// emptyKey carries an empty key.
const emptyKey = `{"Unreadable":false,"Key":"","Headers":null}`

// Bad input: what another program wrote under our key is metadata like any other, and costs nothing.
func TestHostileCarrier(t *testing.T) {
	for _, forged := range []string{
		"", "AQ", "{}", "null", "[]", `{"Key":""}`, emptyKey + " ", " " + emptyKey, emptyKey + emptyKey, `{"Unreadable":false,"Key":"YQ==","Headers":null}`,
		`{"Unreadable":false,"Key":null,"Headers":[]}`, `{"Unreadable":false,"Key":null,"Headers":[{"Key":"YQ=="}]}`, `{"Unreadable":0,"Key":"","Headers":null}`,
		`{"Unreadable":false,"Key":"","Headers":null,"Key":""}`, `{"unreadable":false,"key":"","headers":null}`, strings.Repeat("A", 1<<20), strings.Repeat("[", 100_000), "\x00\xff",
	} {
		msg := message.NewMessage("id", nil)
		msg.Metadata = message.Metadata{KeyRecord: forged, poison.KeyRedriveCount: "1", "a": "b"}
		c, _ := carriedBy(msg)
		testkit.Check(t, c.Key == nil && c.Headers == nil, "%.20q reads as %+v", forged, c)
		record := marshal(t, Marshaler{}, "orders", msg)
		testkit.Check(t, record.Key == nil && len(record.Headers) >= 3, "%.20q", forged)
	}
}

// Decision 15: the key is the original's for what Spillway publishes of what comes from a topic and returns, and for a
// letter in a topic of letters.
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
		"carried key, no story":    {"orders", true, message.Metadata{KeyRecord: emptyKey}, "null", `"inner"`},
		"carried key, redriven":    {"orders", true, message.Metadata{KeyRecord: emptyKey, redriven: "1", poison.KeyOriginalTopic: "orders"}, `""`, `""`},
		"metadata before carrying": {"orders", true, message.Metadata{KeyRecord: emptyKey, letter: "x", poison.KeyOriginalKey: "key"}, `"key"`, `"key"`},

		"output with a letter's keys":    {"invoices", false, message.Metadata{letter: "permanent", poison.KeyOriginalKey: "theirs"}, "null", `"inner"`},
		"output that waits for a retry":  {"invoices", false, message.Metadata{staged: "1", poison.KeyOriginalKey: "theirs"}, "null", `"inner"`},
		"output that comes back home":    {"invoices", false, message.Metadata{redriven: "1", poison.KeyOriginalTopic: "invoices", poison.KeyOriginalKey: "theirs"}, "null", `"inner"`},
		"output with a carried key":      {"invoices", false, message.Metadata{letter: "permanent", KeyRecord: emptyKey}, "null", `"inner"`},
		"output of Watermill's letters":  {"invoices", false, message.Metadata{"reason_poisoned": "x", poison.KeyOriginalKey: "theirs"}, "null", `"inner"`},
		"output with Spring Kafka's key": {"invoices", false, message.Metadata{"kafka_dlt-original-topic": "invoices", "kafka_dlt-exception-fqcn": "x", poison.KeyOriginalKey: "theirs"}, "null", `"inner"`},
	} {
		msg := message.NewMessage("id", nil)
		msg.Metadata = row.metadata
		if row.ours {
			msg.SetContext(chain.Returning(t.Context()))
		}
		for m, want := range map[*Marshaler]string{&plain: row.plain, &keyed: row.inner} {
			got := text(marshal(t, *m, row.topic, msg))
			testkit.Check(t, strings.HasPrefix(got, "key "+want+" "), "%s: %.200s, want %s", name, got, want)
		}
	}
	// A queue that was not given Origin does not write the key, but the letter's context still knows it.
	msg := message.NewMessage("id", nil)
	msg.SetContext(&recordContext{Context: t.Context(), record: &sarama.ConsumerMessage{Key: []byte("key")}})
	testkit.Equal(t, "key of an output", string(marshal(t, plain, "invoices", msg).Key), "")
	msg.Metadata = message.Metadata{letter: "permanent"}
	testkit.Equal(t, "key of a letter", string(marshal(t, Marshaler{}, "orders.dlq", msg).Key), "key")
	dashes := Marshaler{Naming: naming.Scheme{Style: naming.Dashes}}
	msg = message.NewMessage("id", nil)
	msg.Metadata = message.Metadata{letter: "permanent", poison.KeyOriginalKey: "key"}
	for topic, want := range map[string]bool{"orders.dlq": false, "orders-dlq": true, "orders--billing-retry-5s": true, "orders-dlq-parked": true} {
		testkit.Equal(t, topic+": has a key", marshal(t, dashes, topic, msg).Key != nil, want)
	}
}

// Decision 15: KeyRecord is our subscriber's word or nothing: a header of that name is not read, nor written on.
func TestForgedCarrier(t *testing.T) {
	forged := carried{Headers: []sarama.RecordHeader{header("tenant", "evil"), header("tenant", "blue")}}.encode()
	for name, m := range map[string]Marshaler{"plain": {}, "inner": {Inner: kafka.DefaultMarshaler{}}} {
		msg := unmarshal(t, m, &sarama.ConsumerMessage{Headers: headers(KeyRecord, forged, "a", "b")})
		testkit.Check(t, !has(msg, KeyRecord) && msg.Metadata["a"] == "b", "%s: read %v", name, msg.Metadata)
		out := message.NewMessage("id", nil)
		out.Metadata = message.Metadata{KeyRecord: forged, "tenant": "blue"}
		got := text(marshal(t, m, "invoices", out))
		testkit.Check(t, strings.HasSuffix(got, `"tenant"="blue"`), "%s: written as %s", name, got)
	}
}

// Bad input, promise P4: of messages without anything, and of what an Inner that panics, refuses or returns nothing
// says. An output is refused then, and a letter is written as watermill-kafka writes it.
func TestMarshalBadInput(t *testing.T) {
	testkit.Says(t, testkit.Err((Marshaler{}).Marshal("orders", nil)), "wmkafka: ")
	testkit.NoError(t, testkit.Err((Marshaler{}).Marshal("orders", &message.Message{})))
	for name, inner := range bads {
		m := Marshaler{Inner: inner}
		testkit.Says(t, testkit.Err(m.Marshal("orders", message.NewMessage("id", nil))), inner.says)
		letter := poison.Letter{Original: message.NewMessage("1", []byte("a")), Origin: poison.Origin{Key: []byte("key")}}
		got := marshal(t, m, "orders.dlq", letter.Encode())
		testkit.Check(t, string(got.Key) == "key" && string(got.Value) == "a", "%s: %s", name, text(got))
	}
}

var errBad = errors.New("bad")

// bad is a format that nothing is of.
type bad struct {
	err    error
	panics bool
	says   string
}

var bads = map[string]bad{"refuses": {err: errBad, says: "bad"}, "panics": {panics: true, says: "bad"}, "returns nothing": {says: "returned neither"}}

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
	for name, inner := range bads {
		for what, record := range hardRecords {
			m := Marshaler{Inner: inner}
			msg := unmarshal(t, m, record)
			testkit.Says(t, deadletter.Marked(msg.Metadata[deadletter.KeyMarked]), inner.says)
			testkit.Check(t, bytes.Equal(msg.Payload, record.Value), "%s, %s: payload %q", name, what, msg.Payload)
			testkit.Equal(t, name+", "+what+": back", text(withoutOurs(thereAndBack(t, m, record))), text(record))
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
	msg := unmarshal(t, Marshaler{}, hardRecords["ordinary"])
	testkit.Check(t, len(msg.Metadata) == 1, "an ordinary record has metadata %v", msg.Metadata)
	much := strings.Repeat("x", maxCarried/2)
	msg = unmarshal(t, Marshaler{}, &sarama.ConsumerMessage{Headers: headers("via", much, "via", much, "via", "last")})
	testkit.Check(t, msg.Metadata["via"] == "last" && !has(msg, KeyRecord), "too much is carried")
	for _, n := range []int{100, 1000, 30_000} { // each is some bytes of a record, and more of what is carried
		record := &sarama.ConsumerMessage{}
		for range n {
			record.Headers = append(record.Headers, &sarama.RecordHeader{Key: []byte("a")})
		}
		msg = unmarshal(t, Marshaler{}, record)
		testkit.Check(t, has(msg, KeyRecord) == (n < 30_000) && len(msg.Metadata[KeyRecord]) < 2*maxCarried,
			"%d headers are carried in %d bytes", n, len(msg.Metadata[KeyRecord]))
		testkit.Equal(t, "what is carried is read", isCarried(msg.Metadata[KeyRecord]), n < 30_000)
	}
}

func FuzzCarried(f *testing.F) {
	f.Add(emptyKey)
	f.Add(`{"Unreadable":true,"Key":null,"Headers":[{"Key":"YQ==","Value":null}]}`)
	f.Fuzz(func(t *testing.T, value string) {
		msg := message.NewMessage("id", nil)
		msg.Metadata = message.Metadata{KeyRecord: value}
		c, ok := carriedBy(msg)
		if !ok {
			return
		}
		msg.Metadata[KeyRecord] = c.encode()
		again, ok := carriedBy(msg)
		testkit.Check(t, (len(c.Headers) == 0 || ok && len(again.Headers) == len(c.Headers)) && bytes.Equal(again.Key, c.Key),
			"%q reads as %+v and again as %+v", value, c, again)
	})
}

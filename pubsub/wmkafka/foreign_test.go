package wmkafka

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
)

// foreignLetters are records that others really wrote, and the topics where they failed last;
// poison/testdata/foreign/README.md tells how.
var foreignLetters = map[string]string{
	"spring": "spring-orders", "spring-twice": "spring-orders-dlt", "spring-counted": "spring-counted", "spring-key": "spring-keys",
	"spring-value": "spring-values", "spring-retried": "spring-retried", "connect": "connect-orders", "connect-twice": "connect-orders-dlq",
	"streams": "streams-orders", "streams-value": "streams-numbers", "share": "share-orders", "share-limit": "share-orders",
}

func readForeign(t testing.TB, name string) *sarama.ConsumerMessage {
	t.Helper()
	var r struct {
		Topic      string
		Key, Value []byte
		Headers    []struct {
			Key   string
			Value []byte
		}
	}
	raw, err := os.ReadFile("../../poison/testdata/foreign/" + name + ".json")
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	testkit.NoError(t, err)
	record := &sarama.ConsumerMessage{Topic: r.Topic, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		record.Headers = append(record.Headers, &sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
	}
	return record
}

func isOthers(header string) bool {
	return strings.HasPrefix(header, "kafka_") || strings.HasPrefix(header, "retry_topic-") || strings.HasPrefix(header, "__connect.") ||
		strings.HasPrefix(header, "__streams.") || strings.HasPrefix(header, "__dlq.")
}

// Feature D7, promise P2: through this package's marshaler a letter of others tells where it failed and its key, with
// either format; redriven it has its key and none of their headers; parked unread it is the record it was.
func TestForeignLetters(t *testing.T) {
	for name, origin := range foreignLetters {
		record := readForeign(t, name)
		for _, m := range []Marshaler{{}, {Inner: kafka.DefaultMarshaler{}}} {
			l, err := poison.Decode(unmarshal(t, m, record))
			testkit.Check(t, err == nil && l.Origin.Topic == origin && l.Origin.Partition != "" && l.Origin.Offset != "" &&
				bytes.Equal(l.Origin.Key, record.Key), "%s: %+v, %v", name, l.Origin, err)
			back := marshal(t, m, origin, l.Redriven("ada", "campaign", time.Now()))
			testkit.Check(t, bytes.Equal(back.Key, record.Key) && bytes.Equal(back.Value, record.Value),
				"%s: redriven with key %q, value %q", name, back.Key, back.Value)
			for _, h := range back.Headers {
				testkit.Check(t, !isOthers(string(h.Key)) && string(h.Key) != KeyRecord,
					"%s: redriven with %s", name, h.Key)
			}
			unread := unmarshal(t, m, record)
			unread.SetContext(chain.Returning(t.Context())) // as a redrive.Handler parks it
			parked := marshal(t, m, "parked", unread)
			parked.Headers = slices.DeleteFunc(parked.Headers, func(h *sarama.RecordHeader) bool {
				return string(h.Key) == poison.KeyOriginalKey || string(h.Key) == id // which records of others have none of
			})
			testkit.Equal(t, name+": parked", text(parked), text(record))
		}
	}
}

// The key of another's letter is told in metadata, whatever its bytes, and only there: not of ours, which tell it
// themselves, not of a record without one, not of a message that is in its origin topic again.
func TestForeignKey(t *testing.T) {
	const topic, key, binary = "kafka_dlt-original-topic", poison.KeyOriginalKey, poison.KeyOriginalKey + poison.Base64Suffix
	for name, row := range map[string]struct {
		record       *sarama.ConsumerMessage
		text, base64 string
	}{
		"text":      {&sarama.ConsumerMessage{Topic: "orders-dlt", Key: []byte("key"), Headers: headers(topic, "orders")}, "key", ""},
		"binary":    {&sarama.ConsumerMessage{Topic: "orders-dlt", Key: []byte{0, 1}, Headers: headers(topic, "orders")}, "", "AAE="},
		"Watermill": {&sarama.ConsumerMessage{Topic: "poison", Key: []byte{0xff}, Headers: headers("reason_poisoned", "boom", "topic_poisoned", "orders")}, "", "/w=="},
		"told":      {&sarama.ConsumerMessage{Topic: "orders-dlt", Key: []byte("key"), Headers: headers(topic, "orders", key, "first")}, "first", ""},
		"ours":      {&sarama.ConsumerMessage{Topic: "orders.dlq", Key: []byte("key"), Headers: headers(poison.KeyFailureClass, "permanent")}, "", ""},
		"no key":    {&sarama.ConsumerMessage{Topic: "orders-dlt", Headers: headers(topic, "orders")}, "", ""},
		"at home":   {&sarama.ConsumerMessage{Topic: "orders", Key: []byte("key"), Headers: headers(topic, "orders")}, "", ""},
		"no letter": {&sarama.ConsumerMessage{Topic: "orders", Key: []byte("key"), Headers: headers("retry_topic-attempts", "\x00\x00\x00\x02")}, "", ""},
	} {
		msg := unmarshal(t, Marshaler{}, row.record)
		testkit.Check(t, msg.Metadata[key] == row.text && msg.Metadata[binary] == row.base64,
			"%s: %q", name, msg.Metadata)
	}
}

// consumed is the record that a consumer would get of what was produced.
func consumed(t testing.TB, produced *sarama.ProducerMessage) *sarama.ConsumerMessage {
	t.Helper()
	record := &sarama.ConsumerMessage{Topic: produced.Topic}
	encoded := func(e sarama.Encoder) []byte {
		if e == nil {
			return nil
		}
		b := testkit.Must(e.Encode())
		return b
	}
	record.Key, record.Value = encoded(produced.Key), encoded(produced.Value)
	for _, h := range produced.Headers {
		record.Headers = append(record.Headers, &h)
	}
	return record
}

func marshal(t testing.TB, m kafka.Marshaler, topic string, msg *message.Message) *sarama.ConsumerMessage {
	t.Helper()
	produced := testkit.Must(m.Marshal(topic, msg))
	return consumed(t, produced)
}

func unmarshal(t testing.TB, m kafka.Unmarshaler, record *sarama.ConsumerMessage) *message.Message {
	t.Helper()
	msg := testkit.Must(m.Unmarshal(record))
	return msg
}

// text shows all of a record that must survive, nil told from empty, headers by name and, within a name, in order.
func text(record *sarama.ConsumerMessage) string {
	show := func(b []byte) string {
		if b == nil {
			return "null"
		}
		return fmt.Sprintf("%q", b)
	}
	names := map[string][]string{}
	for _, h := range record.Headers {
		names[string(h.Key)] = append(names[string(h.Key)], show(h.Value))
	}
	s := "key " + show(record.Key) + " value " + show(record.Value)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		s += fmt.Sprintf(" %q=%s", name, strings.Join(names[name], ","))
	}
	return s
}

// withoutOurs takes off what a letter's return adds to its record.
func withoutOurs(record *sarama.ConsumerMessage) *sarama.ConsumerMessage {
	clean := *record
	clean.Headers = slices.DeleteFunc(slices.Clone(record.Headers), func(h *sarama.RecordHeader) bool {
		return len(inside.Poison.ProducerMetadata(message.Metadata{string(h.Key): ""})) == 0
	})
	return &clean
}

// thereAndBack sends a record to its dead-letter topic and back, as a queue and a redrive do. The key travels as Origin
// tells it.
func thereAndBack(t testing.TB, m Marshaler, record *sarama.ConsumerMessage) *sarama.ConsumerMessage {
	t.Helper()
	letterOf := func(record *sarama.ConsumerMessage) poison.Letter {
		msg := unmarshal(t, m, record)
		return poison.Letter{Original: msg, Origin: poison.Origin{Topic: "orders", Key: record.Key}, Failure: poison.Failure{Class: classify.ClassPermanent}}
	}
	letter := letterOf(record)
	dead := marshal(t, m, "orders.dlq", letter.Encode())
	testkit.Require(t, bytes.Equal(dead.Key, record.Key), "the letter has key %q, the record %q", dead.Key, record.Key)
	read := testkit.Must(poison.Decode(unmarshal(t, m, dead)))
	return marshal(t, m, "orders", read.Redriven("operator", "id", time.Now()))
}

func headers(pairs ...string) (all []*sarama.RecordHeader) {
	for i := 0; i < len(pairs); i += 2 {
		h := &sarama.RecordHeader{Key: []byte(pairs[i]), Value: []byte(pairs[i+1])}
		if pairs[i+1] == "null" {
			h.Value = nil
		}
		all = append(all, h)
	}
	return all
}

// hardRecords are those that watermill-kafka's marshaler changes, or may.
var hardRecords = map[string]*sarama.ConsumerMessage{
	"ordinary":             {Key: []byte("key"), Value: []byte("value"), Headers: headers(id, "id-1", "tenant", "acme")},
	"no key":               {Value: []byte("value"), Headers: headers(id, "id-1")},
	"empty key":            {Key: []byte{}, Value: []byte("value"), Headers: headers(id, "id-1")},
	"binary key":           {Key: []byte{0, 1, 0xff, 0xfe}, Value: []byte("value"), Headers: headers(id, "id-1")},
	"key of 10 KiB":        {Key: bytes.Repeat([]byte{0xf0}, 10<<10), Value: []byte("value"), Headers: headers(id, "id-1")},
	"tombstone":            {Key: []byte("key"), Headers: headers(id, "id-1")},
	"empty value":          {Key: []byte("key"), Value: []byte{}, Headers: headers(id, "id-1")},
	"nothing at all":       {},
	"no id":                {Value: []byte("value"), Headers: headers("tenant", "acme")},
	"binary id":            {Value: []byte("value"), Headers: headers(id, "\x00\xff\xfe")},
	"id of 300 bytes":      {Value: []byte("value"), Headers: headers(id, strings.Repeat("x", 300))},
	"two ids":              {Value: []byte("value"), Headers: headers(id, "id-1", id, "id-2")},
	"binary header":        {Value: []byte("value"), Headers: headers(id, "id-1", "bin\xffary", "\x00\xff")},
	"null header":          {Value: []byte("value"), Headers: headers(id, "id-1", "gone", "null", "empty", "")},
	"repeated headers":     {Key: []byte("key"), Value: []byte("value"), Headers: headers("via", "a", id, "id-1", "via", "b", "tenant", "acme", "via", "null", "via", "a")},
	"empty header name":    {Value: []byte("value"), Headers: headers(id, "id-1", "", "nameless", "", "twice")},
	"an id in the carrier": {Value: []byte("value"), Headers: headers(id, "id-1", reservedPrefix+id, "a", reservedPrefix+reservedPrefix+id, "b")},
	"a hundred headers":    {Value: []byte("value"), Headers: append(headers(id, "id-1"), manyHeaders(100)...)},
	"one name, 40 times":   {Value: []byte("value"), Headers: append(headers(id, "id-1"), slices.Repeat(headers("via", "x"), 40)...)},
}

func manyHeaders(n int) (all []*sarama.RecordHeader) {
	for i := range n {
		all = append(all, headers(fmt.Sprint("h", i), fmt.Sprint(i))...)
	}
	return all
}

package wmkafka

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
)

// consumed is the record that a consumer would get of what was produced.
func consumed(t testing.TB, produced *sarama.ProducerMessage) *sarama.ConsumerMessage {
	t.Helper()
	record := &sarama.ConsumerMessage{Topic: produced.Topic}
	encoded := func(e sarama.Encoder) []byte {
		if e == nil {
			return nil
		}
		b, err := e.Encode()
		testkit.NoError(t, err)
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
	produced, err := m.Marshal(topic, msg)
	testkit.NoError(t, err)
	return consumed(t, produced)
}

func unmarshal(t testing.TB, m kafka.Unmarshaler, record *sarama.ConsumerMessage) *message.Message {
	t.Helper()
	msg, err := m.Unmarshal(record)
	testkit.NoError(t, err)
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
		return len(poison.Inside().ProducerMetadata(message.Metadata{string(h.Key): ""})) == 0
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
	read, err := poison.Decode(unmarshal(t, m, dead))
	testkit.NoError(t, err)
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

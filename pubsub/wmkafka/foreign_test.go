package wmkafka

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
)

// foreignLetters are records that others really wrote, and the topics they first came from;
// poison/testdata/foreign/README.md tells how.
var foreignLetters = map[string]string{
	"spring": "spring-orders", "spring-twice": "spring-orders", "spring-counted": "spring-counted", "spring-key": "spring-keys",
	"spring-value": "spring-values", "spring-retried": "spring-retried", "connect": "connect-orders", "connect-twice": "connect-orders",
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

// Feature D7, promise P2: through this package's marshaler a letter of others tells its first origin and its key, with
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
		testkit.Check(t, msg.Metadata[key] == row.text && msg.Metadata[binary] == row.base64, "%s: %q", name, msg.Metadata)
	}
}

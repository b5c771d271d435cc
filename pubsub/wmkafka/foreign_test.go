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
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
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
			if err != nil || l.Origin.Topic != origin || l.Origin.Partition == "" || l.Origin.Offset == "" || !bytes.Equal(l.Origin.Key, record.Key) {
				t.Errorf("%s: %+v, %v", name, l.Origin, err)
			}
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
			if got, want := text(parked), text(record); got != want {
				t.Errorf("%s: parked as\n%s, was\n%s", name, got, want)
			}
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
		if msg := unmarshal(t, Marshaler{}, row.record); msg.Metadata[key] != row.text || msg.Metadata[binary] != row.base64 {
			t.Errorf("%s: %q", name, msg.Metadata)
		}
	}
}

// Features D7, V4, on Kafka: letters of others are drained from their topic to where they came from, with key, payload
// and headers of their own and none of their writers'; one that names a topic outside of the allow-list goes nowhere,
// nor does one of a share group without a copy of its record, which would be a tombstone.
func TestForeignLettersDrained(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	dead := c.topic + "-dlt"
	c.create(dead, 1, nil)
	c.deleteLater(naming.Scheme{}.ParkedTopic(dead), naming.Scheme{}.QuarantineTopic(dead)) // which the drain makes
	want := map[string]string{}
	for name, origin := range foreignLetters {
		record := readForeign(t, name)
		for _, h := range record.Headers {
			if strings.HasPrefix(string(h.Value), origin) && strings.HasSuffix(string(h.Key), "topic") { // of this test, and -dlt, -dlq
				h.Value = []byte(c.topic + strings.TrimPrefix(string(h.Value), origin))
			}
		}
		c.produce(produced(dead, record, "fixture", name))
		want[name] = string(record.Key) + " " + string(record.Value)
	}
	forged := readForeign(t, "spring")
	for _, h := range forged.Headers {
		if string(h.Key) == "kafka_dlt-original-topic" {
			h.Value = []byte("payments")
		}
	}
	c.produce(produced(dead, forged, "fixture", "forged"))
	bare := readForeign(t, "share-bare")
	for _, h := range bare.Headers {
		h.Value = []byte(strings.Replace(string(h.Value), "share-orders", c.topic, 1))
	}
	c.produce(produced(dead, bare))

	sub := c.subscriber(SubscriberConfig{}, c.group+"-drain")
	report, err := redrive.DrainTopic(t.Context(), sub, c.publisher(PublisherConfig{}), redrive.DrainTopicConfig{
		Rules:     redrive.Rules{Allow: []string{c.topic}, By: "test"},
		Park:      c.publisher(PublisherConfig{}),
		Topic:     dead,
		Backlog:   sub.Backlog,
		IdleAfter: patience,
	})
	testkit.Require(t, err == nil && report.Redriven == len(want) && report.Refused == 2 && report.Taken == len(want)+2,
		"%+v, %v", report, err)
	arrived := c.records(c.topic, 1)
	testkit.Check(t, len(arrived) == len(want), "%d records arrived", len(arrived))
	for _, record := range arrived {
		own := map[string]string{}
		for _, h := range record.Headers {
			own[string(h.Key)] = string(h.Value)
			if isOthers(string(h.Key)) {
				t.Errorf("%s: arrived with %s", own["fixture"], h.Key)
			}
		}
		if got := string(record.Key) + " " + string(record.Value); got != want[own["fixture"]] || own[poison.KeyRedriveCount] != "1" {
			t.Errorf("%s: arrived as %q with %q", own["fixture"], got, own)
		}
		if tenant := own["tenant"]; tenant != "acme" && own["fixture"] == "spring-twice" {
			t.Errorf("arrived without its own header: %q", own)
		}
		delete(want, own["fixture"])
	}
	testkit.Check(t, len(want) == 0, "did not arrive: %q", want)
	parked := c.records(naming.Scheme{}.ParkedTopic(dead), 1)
	testkit.Require(t, len(parked) == 2 && string(parked[0].Key) == "customer-7" && parked[1].Value == nil,
		"parked: %v", parked)
	if l, err := poison.Decode(unmarshal(t, Marshaler{}, parked[0])); err != nil || l.Origin.Topic != "payments" || len(l.Original.Metadata) != 2 {
		t.Errorf("parked: %+v, %v", l, err)
	}
}

// A live message with the headers of a retry of Spring's still has them in its letter and when it is redriven.
func TestForeignRetryHeadersSurvive(t *testing.T) {
	record := &sarama.ConsumerMessage{Topic: "orders", Headers: headers("retry_topic-attempts", "\x00\x00\x00\x02", "retry_topic-attempts", "\x00\x00\x00\x03")}
	msg := unmarshal(t, Marshaler{}, record)
	l := poison.Read(msg)
	back := marshal(t, Marshaler{}, "orders", l.Redriven("", "", time.Now()))
	var attempts []string
	for _, h := range back.Headers {
		if string(h.Key) == "retry_topic-attempts" {
			attempts = append(attempts, string(h.Value))
		}
	}
	testkit.Check(t, strings.Join(attempts, " ") == "\x00\x00\x00\x02 \x00\x00\x00\x03", "attempts %q", attempts)
}

func produced(topic string, record *sarama.ConsumerMessage, more ...string) *sarama.ProducerMessage {
	p := &sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(record.Value)}
	if record.Key != nil {
		p.Key = sarama.ByteEncoder(record.Key)
	}
	for _, h := range append(record.Headers, headers(more...)...) {
		p.Headers = append(p.Headers, *h)
	}
	return p
}

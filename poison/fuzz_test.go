package poison

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// FuzzDecode gives every key of the contract a hostile value and holds what is read and written again to its bounds.
// Feature D1, D6, promise P2.
func FuzzDecode(f *testing.F) {
	f.Add("id", []byte("payload"), KeyAttempts, "99999999999", KeyRedriveCount, "-1")
	f.Add("", []byte(nil), KeyOriginalTopic, "\xff\x00", KeyOriginalKey+Base64Suffix, "====")
	f.Add("a\x00b", []byte{0xff}, KeyAttemptHistory, "2026-01-01T00:00:00Z transient x\n", KeyLastFailedAt, "9999-99-99")
	f.Add("id", []byte("{}"), "reason_poisoned", "boom", "topic_poisoned", "orders")
	f.Add("id", []byte("{}"), "mine", "\xfe", KeyFailureClass, "permanent")
	f.Add("", []byte("{}"), springTopic, "orders", "kafka_dlt-original-offset", "\x00\x00\x00\x00\x00\x00\x00\xc8")
	f.Add("", []byte("{}"), springException, "java.lang.Error", springAttempts, "\x00\x00\x00\x04")
	f.Add("", []byte("{}"), springRetryTopic, "orders", springDue, "\x7f\xff\xff\xff\xff\xff\xff\xff")
	f.Add("", []byte("{}"), springTopic, "orders-dlt", keyKafkaRecord, "AQAZa2Fma2FfZGx0LW9yaWdpbmFsLXRvcGljB29yZGVycxlrYWZrYV9kbHQtb3JpZ2luYWwtdG9waWMLb3JkZXJzLWRsdA")
	f.Add("", []byte("{}"), connectTopic, "orders", "__connect.errors.partition", "-7")
	f.Add("", []byte("{}"), streamsTopic, "orders", "__streams.errors.offset", "-1")
	f.Add("", []byte(nil), shareTopic, "orders", "__dlq.errors.delivery.count", "32768")
	f.Add("", []byte("{}"), keyDeaths, `[{"count":2,"queue":"orders","reason":"rejected","routing-keys":["o"],"time":"2023-11-14T22:13:20Z"}]`, "x-first-death-queue", "payments")
	f.Add("", []byte("{}"), keyDeaths, `[{"queue":"orders","reason":"expired","count":-1e99},[],{"queue":7}]`, KeyRedriveCount, "2")
	f.Add("", []byte("{}"), springAttempts, strings.Repeat("x", 20<<10), "__connect.errors.stage", "TASK_PUT")
	f.Fuzz(func(t *testing.T, id string, payload []byte, key1, value1, key2, value2 string) {
		msg := message.NewMessage(id, payload)
		msg.Metadata[KeyFailureClass] = "transient"
		msg.Metadata[key1], msg.Metadata[key2] = value1, value2
		if isForeign(msg.Metadata) || len(deathsOf(msg.Metadata)) > 0 { // what others wrote is read only where we did not
			delete(msg.Metadata, KeyFailureClass)
		}
		l, err := Decode(msg)
		testkit.Require(t, err == nil, "a letter by its class or another's mark does not decode: %v", err)
		own := without(msg.Metadata, writersOfLetter(msg.Metadata))
		testkit.Require(t, l.Failure.Attempts >= 0 && l.Redrive.Count >= 0 && l.Failure.Attempts <= 1_000_000 &&
			l.Redrive.Count <= 1_000_000, "unbounded counts: %+v", l)
		again := l.Encode()
		testkit.Require(t, again.UUID == id && bytes.Equal(again.Payload, payload), "id or payload changed")
		added := 0
		for key, value := range again.Metadata {
			if _, producers := own[key]; !producers {
				added += len(key) + len(value)
			} else if msg.Metadata[key] != value {
				t.Fatalf("the producer's %q changed from %q to %q", key, msg.Metadata[key], value)
			}
		}
		testkit.Require(t, added <= MaxAdded, "%d bytes added", added)
		for key := range own {
			testkit.Require(t, again.Metadata[key] == msg.Metadata[key] || isOrder(key),
				"the producer's %q is lost", key)
		}
		testkit.Require(t, isLetter(again), "encoded again it is no letter")
		second, err := Decode(again)
		testkit.Require(t, err == nil, "what was encoded does not decode: %v", err)
		if o := l.Origin; strings.HasPrefix(o.Partition, "-") && msg.Metadata[KeyOriginalPartition] == "" {
			t.Fatalf("believed %+v", o)
		}
		testkit.Require(t, second.Origin.Topic == l.Origin.Topic && second.Redrive.Count == l.Redrive.Count &&
			second.Failure.Attempts == l.Failure.Attempts, "not stable:\n%+v\n%+v", l, second)
	})
}

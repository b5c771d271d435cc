package poison

import (
	"encoding/json"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// foreignRecord is a record that others wrote; testdata/foreign/README.md tells who.
type foreignRecord struct {
	Topic      string
	Key, Value []byte
	Headers    []struct {
		Key   string
		Value []byte
	}
}

func readForeign(t testing.TB, name string) (r foreignRecord) {
	t.Helper()
	raw, err := os.ReadFile("testdata/foreign/" + name + ".json")
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	testkit.NoError(t, err)
	return r
}

// message is what the marshaler of watermill-kafka makes of the record: bytes as they are, and of a name the last.
func (r foreignRecord) message() *message.Message {
	msg := message.NewMessage("", r.Value)
	for _, h := range r.Headers {
		msg.Metadata[h.Key] = string(h.Value)
	}
	return msg
}

const listenerFailed = "org.springframework.kafka.listener.ListenerExecutionFailedException > "

var (
	sent          = time.UnixMilli(1700000000123).UTC()
	someTime      = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC) // when the fixtures were written
	notSerialized = "Converting byte[] to Kafka Connect data failed due to serialization error: (in org.apache.kafka.connect.json.JsonConverter, task 0)"
)

// Feature D7: the letters that others really write to Kafka are read, and nothing of theirs stays on the original.
func TestDecodeForeignLetters(t *testing.T) {
	const (
		rejected = listenerFailed + "Spring$OrderRejected"
		bytes    = "org.springframework.kafka.support.serializer.DeserializationException"
		data     = "org.apache.kafka.connect.errors.DataException"
		number   = "org.apache.kafka.common.errors.SerializationException"
	)
	in := func(topic, partition, offset, group string, at time.Time) Origin {
		return Origin{Topic: topic, Partition: partition, Offset: offset, ConsumerGroup: group, Timestamp: at}
	}
	failed := func(kind, text string, attempts int) Failure {
		return Failure{Type: kind, Description: text, Attempts: attempts}
	}
	connect := Letter{Origin: in("connect-orders", "2", "12", "", time.Time{}), Failure: failed(data, notSerialized, 0)}
	connect.Origin.Handler, connect.Failure.Reason = "warehouse", "value_converter"
	connectTwice := connect // where it failed last
	connectTwice.Origin = Origin{Topic: "connect-orders-dlq", Partition: "1", Offset: "0", Handler: "archive"}
	retried := failed(rejected, "Listener failed; order 46: no such customer", 3)
	retried.LastFailedAt = someTime
	for name, want := range map[string]Letter{
		"spring": {Origin: in("spring-orders", "2", "200", "billing", sent),
			Failure: failed(rejected, "Listener failed; order 42: no such customer", 0)},
		"spring-counted": {Origin: in("spring-counted", "1", "0", "billing", someTime),
			Failure: failed(rejected, "Listener failed; order 43: no such customer", 3)},
		"spring-key": {Origin: in("spring-keys", "1", "0", "billing", someTime),
			Failure: failed(bytes, "failed to deserialize", 0)},
		"spring-value": {Origin: in("spring-values", "1", "0", "billing", someTime),
			Failure: failed(bytes, "failed to deserialize", 0)},
		"spring-retried": {Origin: in("spring-retried", "1", "0", "billing", sent), Failure: retried},
		"spring-twice": {Origin: in("spring-orders-dlt", "2", "0", "undertaker", someTime),
			Failure: failed(listenerFailed+"java.lang.IllegalStateException", "Listener failed; cannot bury it", 0)},
		"connect":       connect,
		"connect-twice": connectTwice,
		"streams": {Origin: in("streams-orders", "0", "1", "", time.Time{}),
			Failure: failed("Fix$OrderRejected", "order 42: no such customer", 0)},
		"streams-value": {Origin: in("streams-numbers", "0", "0", "", time.Time{}),
			Failure: failed(number, "Size of data received by IntegerDeserializer is not 4", 0)},
		"share": {Origin: in("share-orders", "2", "0", "billing", time.Time{}),
			Failure: failed("", "Offset rejected by client.", 1)},
		"share-limit": {Origin: in("share-orders", "2", "1", "billing", time.Time{}),
			Failure: failed("", "Offset delivery count exceeded the threshold.", 5)},
		"share-bare": {Origin: Origin{ConsumerGroup: "audit"}, Failure: failed("", "Offset rejected by client. The broker "+
			"kept no copy: the record is in share-orders, partition 2, offset 0. "+
			"Set errors.deadletterqueue.copy.record.enable for the group.", 1)},
	} {
		record := readForeign(t, name)
		msg := record.message()
		before := maps.Clone(msg.Metadata)
		l, err := Decode(msg)
		testkit.Require(t, err == nil && isLetter(msg) && maps.Equal(msg.Metadata, before), "%s: %v", name, err)
		for _, at := range []*time.Time{&l.Origin.Timestamp, &l.Failure.LastFailedAt} {
			if day := at.Truncate(24 * time.Hour); day.Equal(someTime) {
				*at = day
			}
		}
		if stack := l.Failure.Stack; !strings.HasPrefix(name, "share") && (!strings.Contains(stack, "\tat org.") || len(l.Failure.StackHash) != 16) {
			t.Errorf("%s: stack %q, hash %q", name, stack, l.Failure.StackHash)
		}
		checkOriginal(t, l, record)
		l.Original, l.Failure.Stack, l.Failure.StackHash = nil, "", ""
		testkit.Check(t, equalLetters(l, want), "%s: read\n%+v, want\n%+v", name, l, want)
	}
}

// equalLetters compares by what is written of both.
func equalLetters(a, b Letter) bool { return maps.Equal(a.Encode().Metadata, b.Encode().Metadata) }

// checkOriginal holds the original, what is redriven and what is written again to the record without its writer's
// headers.
func checkOriginal(t *testing.T, l Letter, record foreignRecord) {
	t.Helper()
	own := message.Metadata{}
	for _, h := range record.Headers {
		if h.Key == "tenant" {
			own["tenant"] = "acme"
		}
	}
	testkit.Check(t, maps.Equal(l.Original.Metadata, own) && string(l.Original.Payload) == string(record.Value),
		"the original is %q with %q", l.Original.Payload, l.Original.Metadata)
	again, err := Decode(l.Encode())
	testkit.Check(t, err == nil && again.Failure.Class == classify.ClassUnknown && equalLetters(again, l),
		"written again and read: %+v, %v", again, err)
	back := l.Redriven("ada", "campaign", longAgo)
	for key := range back.Metadata {
		testkit.Check(t, strings.HasPrefix(key, "x-original-") || strings.HasPrefix(key, "x-redrive") ||
			key == "tenant", "redriven with %s", key)
	}
	testkit.Check(t, !isLetter(back) && back.Metadata[KeyOriginalTopic] == l.Origin.Topic,
		"redriven with %q", back.Metadata)
}

func with(msg *message.Message, key, value string) *message.Message {
	msg.Metadata[key] = value
	return msg
}

// Feature D7: our own keys count before those of others, and PoisonQueue's before Spring's and Connect's.
func TestOurKeysBeforeForeign(t *testing.T) {
	msg := readForeign(t, "spring").message()
	msg.Metadata[KeyOriginalTopic], msg.Metadata[KeyOriginalOffset] = "ours", "7"
	if l := Read(msg); l.Origin.Topic != "ours" || l.Origin.Offset != "7" || l.Origin.Partition != "" || !strings.HasPrefix(l.Failure.Type, listenerFailed) {
		t.Errorf("redriven by us, then failed in Spring: %+v", l)
	}
	msg.Metadata[keyWatermillReason] = "boom"
	if l := Read(msg); l.Failure.Description != "boom" || l.Failure.Type != "" || l.Failure.Stack != "" {
		t.Errorf("with PoisonQueue's keys: %+v", l.Failure)
	}
	msg.Metadata[KeyFailureClass] = "invalid"
	l := Read(msg)
	testkit.Check(t, l.Failure.Class == classify.ClassInvalid && l.Failure.Description == "" && l.Failure.Type == "" &&
		l.Origin.ConsumerGroup == "", "with our class: %+v", l)
	testkit.Check(t, len(l.Original.Metadata) == 1, "left on the original: %q", l.Original.Metadata)
	both := readForeign(t, "connect").message()
	maps.Copy(both.Metadata, readForeign(t, "spring").message().Metadata)
	if l := Read(both); l.Origin.Topic != "spring-orders" || l.Failure.Reason != "" || len(l.Original.Metadata) != 1 {
		t.Errorf("of both: %+v with %q", l, l.Original.Metadata)
	}
}

// Feature D7: the same place in the code has the same hash, whatever the messages between the frames say.
func TestJavaStackHash(t *testing.T) {
	hash := func(first, line string) string {
		msg := message.NewMessage("", nil)
		msg.Metadata = message.Metadata{springException: "E", "kafka_dlt-exception-stacktrace": "E: " + first +
			"\n\tat a.B.c(B.java:" + line + ")\n\tat java.base/java.lang.Thread.run(Thread.java:840)\nCaused by: F: (" + first + ")\n\t... 2 more\n"}
		return Read(msg).Failure.StackHash
	}
	one, other := hash("order 42", "7"), hash("order 43 (again)", "7")
	testkit.Check(t, one == other && one != "", "%q and %q for one place", one, other)
	testkit.Check(t, hash("order 42", "7") != hash("order 42", "8"), "one hash for two places")
	msg := message.NewMessage("", nil)
	msg.Metadata = message.Metadata{springException: "E", "kafka_dlt-exception-stacktrace": "no frames"}
	l := Read(msg)
	testkit.Check(t, l.Failure.StackHash == "" && l.Failure.Stack == "no frames", "%+v", l.Failure)
}

// Promise P5: to find that there is nothing to take off costs no allocation.
func TestProducerMetadataAllocatesNothing(t *testing.T) {
	metadata := readForeign(t, "connect").message().Metadata
	for key := range metadata {
		if strings.HasPrefix(key, "__connect") {
			delete(metadata, key)
		}
	}
	metadata[springAttempts] = "\x00\x00\x00\x02"
	msg := message.NewMessage("", nil)
	msg.Metadata = metadata
	n := testing.AllocsPerRun(100, func() { _, _ = (*inner)(nil).ProducerMetadata(metadata), isLetter(msg) })
	testkit.Check(t, n == 0, "%v allocations", n)
}

// Decision 29: what a broker and an adapter added to a letter on its way is not of the original.
func TestAddedIsNotOfTheOriginal(t *testing.T) {
	msg := message.NewMessage("m", nil)
	msg.Metadata = message.Metadata{KeyFailureClass: "permanent", "tenant": "acme", "x-acquired-count": "2",
		"_watermill_amqp_redelivered": "true"}
	got := Read(msg).Original.Metadata
	testkit.Check(t, len(got) == 1 && got["tenant"] == "acme" && len(msg.Metadata) == 4, "%v of %v", got, msg.Metadata)
}

package poison

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
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
	if err != nil {
		t.Fatal(err)
	}
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

// carrying adds what package wmkafka keeps of headers that share a name.
func (r foreignRecord) carrying() *message.Message {
	msg := r.message()
	raw := []byte{1, 0}
	for _, h := range r.Headers {
		raw = append(binary.AppendUvarint(raw, uint64(len(h.Key))+1), h.Key...)
		raw = append(binary.AppendUvarint(raw, uint64(len(h.Value))+1), h.Value...)
	}
	msg.Metadata[keyKafkaRecord] = base64.RawStdEncoding.EncodeToString(raw)
	return msg
}

const listenerFailed = "org.springframework.kafka.listener.ListenerExecutionFailedException > "

var (
	sent          = time.UnixMilli(1700000000123).UTC()
	someTime      = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC) // when the fixtures were written
	notSerialized = "Converting byte[] to Kafka Connect data failed due to serialization error: (in org.apache.kafka.connect.json.JsonConverter, task 0)"
)

// Feature D7: the letters that Spring Kafka and Kafka Connect really write are read, and nothing of theirs stays on the
// original.
func TestDecodeForeignLetters(t *testing.T) {
	for name, want := range map[string]Letter{
		"spring": {
			Origin:  Origin{Topic: "spring-orders", Partition: "2", Offset: "200", Timestamp: sent, ConsumerGroup: "billing"},
			Failure: Failure{Type: listenerFailed + "Spring$OrderRejected", Description: "Listener failed; order 42: no such customer"},
		},
		"spring-counted": {
			Origin:  Origin{Topic: "spring-counted", Partition: "1", Offset: "0", Timestamp: someTime, ConsumerGroup: "billing"},
			Failure: Failure{Type: listenerFailed + "Spring$OrderRejected", Description: "Listener failed; order 43: no such customer", Attempts: 3},
		},
		"spring-key": {
			Origin:  Origin{Topic: "spring-keys", Partition: "1", Offset: "0", Timestamp: someTime, ConsumerGroup: "billing"},
			Failure: Failure{Type: "org.springframework.kafka.support.serializer.DeserializationException", Description: "failed to deserialize"},
		},
		"spring-value": {
			Origin:  Origin{Topic: "spring-values", Partition: "1", Offset: "0", Timestamp: someTime, ConsumerGroup: "billing"},
			Failure: Failure{Type: "org.springframework.kafka.support.serializer.DeserializationException", Description: "failed to deserialize"},
		},
		"spring-retried": {
			Origin: Origin{Topic: "spring-retried", Partition: "1", Offset: "0", Timestamp: sent, ConsumerGroup: "billing"},
			Failure: Failure{
				Type: listenerFailed + "Spring$OrderRejected", Description: "Listener failed; order 46: no such customer",
				Attempts: 3, LastFailedAt: someTime,
			},
		},
		"spring-twice": {
			Origin:  Origin{Topic: "spring-orders", Partition: "2", Offset: "200", Timestamp: sent, ConsumerGroup: "billing"},
			Failure: Failure{Type: listenerFailed + "java.lang.IllegalStateException", Description: "Listener failed; cannot bury it"},
		},
		"connect": {
			Origin:  Origin{Topic: "connect-orders", Partition: "2", Offset: "12", Handler: "warehouse"},
			Failure: Failure{Reason: "value_converter", Type: "org.apache.kafka.connect.errors.DataException", Description: notSerialized},
		},
		"connect-twice": {
			Origin:  Origin{Topic: "connect-orders", Partition: "2", Offset: "12", Handler: "warehouse"},
			Failure: Failure{Reason: "value_converter", Type: "org.apache.kafka.connect.errors.DataException", Description: notSerialized},
		},
	} {
		record := readForeign(t, name)
		msg := record.carrying()
		before := maps.Clone(msg.Metadata)
		l, err := Decode(msg)
		if err != nil || !IsLetter(msg) || !maps.Equal(msg.Metadata, before) {
			t.Fatalf("%s: %v", name, err)
		}
		for _, at := range []*time.Time{&l.Origin.Timestamp, &l.Failure.LastFailedAt} {
			if day := at.Truncate(24 * time.Hour); day.Equal(someTime) {
				*at = day
			}
		}
		if stack := l.Failure.Stack; !strings.Contains(stack, "\tat org.") || len(l.Failure.StackHash) != 16 {
			t.Errorf("%s: stack %q, hash %q", name, stack, l.Failure.StackHash)
		}
		checkOriginal(t, l, record)
		l.Original, l.Failure.Stack, l.Failure.StackHash = nil, "", ""
		if !equalLetters(l, want) {
			t.Errorf("%s: read\n%+v, want\n%+v", name, l, want)
		}
	}
}

// equalLetters compares by what is written of both.
func equalLetters(a, b Letter) bool { return maps.Equal(a.Encode().Metadata, b.Encode().Metadata) }

// checkOriginal holds the original, what is redriven and what is written again to the record without its writer's headers.
func checkOriginal(t *testing.T, l Letter, record foreignRecord) {
	t.Helper()
	own := message.Metadata{}
	for _, h := range record.Headers {
		if h.Key == "tenant" {
			own["tenant"] = "acme"
		}
	}
	delete(l.Original.Metadata, keyKafkaRecord)
	if !maps.Equal(l.Original.Metadata, own) || string(l.Original.Payload) != string(record.Value) {
		t.Errorf("the original is %q with %q", l.Original.Payload, l.Original.Metadata)
	}
	again, err := Decode(l.Encode())
	if err != nil || again.Failure.Class != classify.ClassUnknown || !equalLetters(again, l) {
		t.Errorf("written again and read: %+v, %v", again, err)
	}
	back := l.Redriven("ada", "campaign", longAgo)
	for key := range back.Metadata {
		if !strings.HasPrefix(key, "x-original-") && !strings.HasPrefix(key, "x-redrive") && key != "tenant" {
			t.Errorf("redriven with %s", key)
		}
	}
	if IsLetter(back) || back.Metadata[KeyOriginalTopic] != l.Origin.Topic {
		t.Errorf("redriven with %q", back.Metadata)
	}
}

// Feature D7: without package wmkafka only the last header of a name is left, and it tells the truth: where the message
// failed last. The same goes for a record of wmkafka's that is damaged or tells of other values.
func TestForeignLetterWithoutRecord(t *testing.T) {
	record := readForeign(t, "spring-twice")
	stale := record.carrying()
	stale.Metadata[springTopic] = "elsewhere-dlt"
	for want, messages := range map[string][]*message.Message{
		"spring-orders-dlt": {record.message(), with(record.message(), keyKafkaRecord, "?"), with(record.message(), keyKafkaRecord, "AgA")},
		"elsewhere-dlt":     {stale},
	} {
		for _, msg := range messages {
			l, err := Decode(msg)
			if err != nil || l.Origin.Topic != want {
				t.Errorf("%+v, %v", l.Origin, err)
			}
		}
	}
	l, _ := Decode(stale)
	if l.Origin.Partition != "" || l.Origin.Offset != "" || !l.Origin.Timestamp.IsZero() || l.Origin.ConsumerGroup != "" {
		t.Errorf("it cannot be told which of two values is the topic's: %+v", l.Origin)
	}
}

func with(msg *message.Message, key, value string) *message.Message {
	msg.Metadata[key] = value
	return msg
}

// Feature D7: of several origins the first that can be believed counts, which none is that a producer of the live topic
// wrote.
func TestFirstHop(t *testing.T) {
	for _, row := range []struct {
		want   string
		topics []string
	}{
		{"", nil},
		{"orders", []string{"orders"}},
		{"orders", []string{"orders", "orders-dlt"}},
		{"orders", []string{"orders", "orders.DLT", "orders.DLT-dlt"}},
		{"orders", []string{"orders", "orders_dlq"}},
		{"orders", []string{"payments", "orders"}},
		{"orders", []string{"payments", "orders", "orders-dlt"}},
		{"orders-dlt", []string{"", "orders-dlt"}},
		{"orders-dlt", []string{"", "-dlt", "orders-dlt"}},
		{"ordersxdlt", []string{"orders", "ordersxdlt"}},
		{"orders-eu", []string{"orders", "orders-eu"}},
		{"orders-new", []string{"orders", "orders-new"}},
		{"orders", []string{"orders", "orders"}},
	} {
		msg := message.NewMessage("", nil)
		raw := []byte{1, 2, 1}
		for _, topic := range row.topics {
			raw = append(append(raw, byte(len(springTopic)+1)), springTopic...)
			raw = append(append(raw, byte(len(topic)+1)), topic...)
			msg.Metadata[springTopic] = topic
		}
		msg.Metadata[keyKafkaRecord] = base64.RawStdEncoding.EncodeToString(raw)
		if l := Read(msg); l.Origin.Topic != row.want {
			t.Errorf("%q: believed %q", row.topics, l.Origin.Topic)
		}
	}
}

// Feature D7: a retry topic's letter that failed again in a listener of its dead-letter topic still has its first origin,
// and the group that goes with it.
func TestRetriedThenFailedAgain(t *testing.T) {
	record := readForeign(t, "spring-retried")
	for _, h := range [][2]string{
		{springTopic, "spring-retried-dlt"}, {"kafka_dlt-original-partition", "\x00\x00\x00\x00"}, {springGroup, "undertaker"},
		{springException, "java.lang.Error"}, {"kafka_dlt-exception-message", "again"},
	} {
		record.Headers = append(record.Headers, struct {
			Key   string
			Value []byte
		}{h[0], []byte(h[1])})
	}
	l, err := Decode(record.carrying())
	if err != nil || l.Origin.Topic != "spring-retried" || l.Origin.Partition != "1" || l.Origin.ConsumerGroup != "billing" ||
		l.Failure.Description != "again" || l.Failure.Type != "java.lang.Error" {
		t.Errorf("%+v, %v", l, err)
	}
}

// Promise P2, bad input: what cannot be a partition, an offset, a time or a count reads as absent, and texts are bounded.
func TestForeignHostileValues(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, value := range []string{
		"", "\x00", "\x00\x00\x01", "\xff\xff\xff\xff", "\x80\x00\x00\x00\x00\x00\x00\x00", "\xef\xbf\xbd\x00\x00\x00",
		"\x00\x00\x00\x00\x00\x00\x00\x00\x01", "\x7f\xff\xff\xff\xff\xff\xff\xff", "-1", "99999999999999999999", "1.5", "+-1", long,
	} {
		msg := message.NewMessage("", nil)
		for key := range ours {
			if ours[key]&(bySpring|byConnect) != 0 {
				msg.Metadata[key] = value
			}
		}
		for _, key := range []string{springTopic, connectTopic} {
			other := message.NewMessage("", nil)
			for k, v := range msg.Metadata {
				if ours[k]&ours[key]&^byMark != 0 && !slices.Contains(foreignMarks[:], k) {
					other.Metadata[k] = v
				}
			}
			other.Metadata[key] = "orders"
			other.Metadata[keyKafkaRecord] = value
			l, err := Decode(other)
			if err != nil || l.Origin.Topic != "orders" {
				t.Fatalf("%.20q: %+v, %v", value, l.Origin, err)
			}
			max := len(value) == 8 && value[0] == 0x7f // the one that can be an offset
			if o := l.Origin; o.Partition != "" || o.Offset != "" && !max || !o.Timestamp.IsZero() || len(o.ConsumerGroup)+len(o.Handler) > 2*maxIdentity {
				t.Errorf("%.20q: believed %+v", value, o)
			}
			if f := l.Failure; f.Attempts != 0 || !f.LastFailedAt.IsZero() && len(value) > 8 ||
				len(f.Description) > DefaultMaxAdded || len(f.Stack) > DefaultMaxAdded || len(f.Type) > 2*DefaultMaxAdded+3 || len(f.Reason) > 128 {
				t.Errorf("%.20q: believed %+v", value, f)
			}
		}
	}
	msg := message.NewMessage("", nil)
	msg.Metadata[springTopic] = long
	if l, err := Decode(msg); err != nil || l.Origin.Topic != "" {
		t.Errorf("a topic of %d bytes, %v", len(l.Origin.Topic), err)
	}
}

// Feature D7: numbers are read in Java's order of bytes, text or not, and from base64 where something made it of them.
func TestForeignNumbers(t *testing.T) {
	for _, row := range []struct{ key, value, partition, offset string }{
		{"kafka_dlt-original-partition", "\x00\x00\x00\x01", "1", ""},
		{"kafka_dlt-original-partition", "\x00\x00\x01\x00", "256", ""},
		{"kafka_dlt-original-partition", "\x7f\xff\xff\xff", "2147483647", ""},
		{"kafka_dlt-original-partition-b64", "AAAAgA==", "128", ""},
		{"kafka_dlt-original-offset", "\x00\x00\x00\x00\x00\x00\x00\xc8", "", "200"},
		{"kafka_dlt-original-offset", "\x7f\xff\xff\xff\xff\xff\xff\xff", "", "9223372036854775807"},
		{"kafka_dlt-original-offset-b64", "AAAAAAAAAMg=", "", "200"},
		{"kafka_dlt-original-offset-b64", "AAAAAAA?", "", ""},
	} {
		msg := message.NewMessage("", nil)
		msg.Metadata = message.Metadata{springTopic: "orders", row.key: row.value}
		l, err := Decode(msg)
		if err != nil || l.Origin.Partition != row.partition || l.Origin.Offset != row.offset || len(l.Original.Metadata) != 0 {
			t.Errorf("%s %q: %+v of %q, %v", row.key, row.value, l.Origin, l.Original.Metadata, err)
		}
	}
	for value, want := range map[string]int{"\x04": 3, "\x00\x00\x00\x02": 1, "\x00\x00\x00\x01": 0, "\x00\x00\x00\x00": 0, "\x00\x00": 0, "\x7f\xff\xff\xff": 0, "\x00\x00\x00\x00\x04": 0} {
		msg := message.NewMessage("", nil)
		msg.Metadata = message.Metadata{springException: "E", springAttempts: value}
		if l := Read(msg); l.Failure.Attempts != want {
			t.Errorf("%q: %d attempts, want %d", value, l.Failure.Attempts, want)
		}
	}
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
	if l.Failure.Class != classify.ClassInvalid || l.Failure.Description != "" || l.Failure.Type != "" || l.Origin.ConsumerGroup != "" {
		t.Errorf("with our class: %+v", l)
	}
	if len(l.Original.Metadata) != 1 {
		t.Errorf("left on the original: %q", l.Original.Metadata)
	}
	both := readForeign(t, "connect").message()
	maps.Copy(both.Metadata, readForeign(t, "spring").message().Metadata)
	if l := Read(both); l.Origin.Topic != "spring-orders" || l.Failure.Reason != "" || len(l.Original.Metadata) != 1 {
		t.Errorf("of both: %+v with %q", l, l.Original.Metadata)
	}
}

// Promise P2: what others' retries add to messages that are no letters stays on them, and so do a producer's own names.
func TestForeignHeadersOfLiveMessages(t *testing.T) {
	for _, key := range []string{
		springAttempts, springDue, "retry_topic-original-timestamp", springDelivery, springGroup, "kafka_dlt-original-offset",
		"__connect.errors.stage", "kafka_messageKey", "__TypeId__", springTopic + Base64Suffix,
	} {
		msg := message.NewMessage("", nil)
		msg.Metadata[key] = "\x00\x00\x00\x02"
		if _, err := Decode(msg); !errors.Is(err, ErrNotLetter) || IsLetter(msg) {
			t.Errorf("with %s: %v", key, err)
		}
		if own := ProducerMetadata(msg.Metadata); len(own) != 1 || len(Read(msg).Original.Metadata) != 1 {
			t.Errorf("%s is taken off", key)
		}
	}
	msg := readForeign(t, "connect").message()
	msg.Metadata[springAttempts], msg.Metadata["kafka_messageKey"] = "\x00\x00\x00\x02", "key"
	if l := Read(msg); len(l.Original.Metadata) != 3 || l.Failure.Attempts != 0 {
		t.Errorf("a letter of Connect's is left with %q", l.Original.Metadata)
	}
	for _, mark := range foreignMarks {
		if msg := with(message.NewMessage("", nil), mark, "x"); !IsLetter(msg) || len(ProducerMetadata(msg.Metadata)) != 0 {
			t.Errorf("%s makes no letter", mark)
		}
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
	if one, other := hash("order 42", "7"), hash("order 43 (again)", "7"); one != other || one == "" {
		t.Errorf("%q and %q for one place", one, other)
	}
	if hash("order 42", "7") == hash("order 42", "8") {
		t.Error("one hash for two places")
	}
	msg := message.NewMessage("", nil)
	msg.Metadata = message.Metadata{springException: "E", "kafka_dlt-exception-stacktrace": "no frames"}
	if l := Read(msg); l.Failure.StackHash != "" || l.Failure.Stack != "no frames" {
		t.Errorf("%+v", l.Failure)
	}
}

// Feature V2: an origin that a producer forged in another's words is believed as little as one in ours: a letter that the
// queue writes tells the topic that the message came from.
func TestForgedForeignOrigin(t *testing.T) {
	queue, err := NewQueue(&sink{}, QueueConfig{})
	if err != nil {
		t.Fatal(err)
	}
	failure := &classify.Failure{}
	failure.Add(errors.New("no"), classify.Verdict{Class: classify.ClassPermanent}, longAgo)
	for _, key := range []string{KeyOriginalTopic, springTopic, springRetryTopic, connectTopic, keyWatermillTopic} {
		msg := message.NewMessage("id", nil)
		msg.Metadata = message.Metadata{key: "payments", "mine": "kept"}
		source := Source{Topic: "orders", Handler: "billing"}
		if queue.isDeadLetter(msg, "orders") {
			t.Errorf("%s makes a dead-letter topic of a live one", key)
		}
		l := queue.letter(msg, failure, source, false)
		if l.Origin.Topic != "orders" || l.Original.Metadata["mine"] != "kept" || len(l.Original.Metadata) != 1 || l.Failure.Type != "*errors.errorString" {
			t.Errorf("%s: %+v of %q", key, l, l.Original.Metadata)
		}
	}
	back := readForeign(t, "spring").message() // put back into its topic by hand, headers and all
	l := queue.letter(back, failure, Source{Topic: "spring-orders", Handler: "billing"}, false)
	if l.Origin.Offset != "200" || l.Origin.Handler != "billing" || l.Failure.Description != "no" || len(l.Original.Metadata) != 1 {
		t.Errorf("%+v of %q", l, l.Original.Metadata)
	}
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
	if n := testing.AllocsPerRun(100, func() { _, _ = ProducerMetadata(metadata), IsLetter(msg) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

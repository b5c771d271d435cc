package poison

import (
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/attempts"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/naming"
)

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
		l := Read(msg)
		testkit.Check(t, l.Origin.Topic == row.want, "%q: believed %q", row.topics, l.Origin.Topic)
	}
}

// Promise P2, bad input: what cannot be a partition, an offset, a time or a count reads as absent, and texts are
// bounded.
func TestForeignHostileValues(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, value := range []string{
		"", "\x00", "\x00\x00\x01", "\xff\xff\xff\xff", "\x80\x00\x00\x00\x00\x00\x00\x00", "\xef\xbf\xbd\x00\x00\x00",
		"\x00\x00\x00\x00\x00\x00\x00\x00\x01", "\x7f\xff\xff\xff\xff\xff\xff\xff", "-1", "99999999999999999999", "1.5", "+-1", long,
	} {
		msg := message.NewMessage("", nil)
		for key := range ours {
			if ours[key]&(bySpring|byConnect|byStreams|byShare) != 0 {
				msg.Metadata[key] = value
			}
		}
		for _, key := range []string{springTopic, connectTopic, streamsTopic, shareTopic} {
			other := message.NewMessage("", []byte("{}"))
			for k, v := range msg.Metadata {
				if ours[k]&ours[key]&^byMark != 0 && !slices.Contains(foreignMarks[:], k) {
					other.Metadata[k] = v
				}
			}
			other.Metadata[key] = "orders"
			other.Metadata[keyKafkaRecord] = value
			l, err := Decode(other)
			testkit.Require(t, err == nil && l.Origin.Topic == "orders", "%.20q: %+v, %v", value, l.Origin, err)
			max := len(value) == 8 && value[0] == 0x7f // the one that can be an offset
			if o := l.Origin; o.Partition != "" || o.Offset != "" && !max || !o.Timestamp.IsZero() || len(o.ConsumerGroup)+len(o.Handler) > 2*maxIdentity {
				t.Errorf("%.20q: believed %+v", value, o)
			}
			if f := l.Failure; f.Attempts != 0 || !f.LastFailedAt.IsZero() && len(value) > 8 ||
				len(f.Description) > MaxAdded || len(f.Stack) > MaxAdded || len(f.Type) > 2*MaxAdded+3 || len(f.Reason) > 128 {
				t.Errorf("%.20q: believed %+v", value, f)
			}
		}
	}
	msg := message.NewMessage("", nil)
	msg.Metadata[springTopic] = long
	l, err := Decode(msg)
	testkit.Check(t, err == nil && l.Origin.Topic == "", "a topic of %d bytes, %v", len(l.Origin.Topic), err)
}

// Promise P2: what others' retries add to messages that are no letters stays on them, and so do a producer's own names.
func TestForeignHeadersOfLiveMessages(t *testing.T) {
	for _, key := range []string{
		springAttempts, springDue, "retry_topic-original-timestamp", springDelivery, springGroup, "kafka_dlt-original-offset",
		"__connect.errors.stage", "kafka_messageKey", "__TypeId__", springTopic + Base64Suffix,
	} {
		msg := message.NewMessage("", nil)
		msg.Metadata[key] = "\x00\x00\x00\x02"
		_, err := Decode(msg)
		testkit.Check(t, errors.Is(err, ErrNotLetter) && !isLetter(msg), "with %s: %v", key, err)
		testkit.Check(t, len(producerMetadata(msg.Metadata)) == 1 && len(Read(msg).Original.Metadata) == 1,
			"%s is taken off", key)
	}
	msg := readForeign(t, "connect").message()
	msg.Metadata[springAttempts], msg.Metadata["kafka_messageKey"] = "\x00\x00\x00\x02", "key"
	if l := Read(msg); len(l.Original.Metadata) != 3 || l.Failure.Attempts != 0 {
		t.Errorf("a letter of Connect's is left with %q", l.Original.Metadata)
	}
	for _, mark := range foreignMarks {
		msg := with(message.NewMessage("", nil), mark, "x")
		testkit.Check(t, isLetter(msg) && len(producerMetadata(msg.Metadata)) == 0, "%s makes no letter", mark)
	}
}

// Feature V2: an origin that a producer forged in another's words is believed as little as one in ours: a letter that
// the queue writes tells the topic that the message came from.
func TestForgedForeignOrigin(t *testing.T) {
	queue := newQueue(t, &sink{}, QueueConfig{})
	failure := &classify.Failure{}
	attempts.Add(failure, errors.New("no"), classify.Verdict{Class: classify.ClassPermanent}, longAgo)
	for _, key := range []string{
		KeyOriginalTopic, springTopic, springRetryTopic, connectTopic, keyWatermillTopic, streamsTopic, shareTopic,
	} {
		msg := message.NewMessage("id", []byte("{}"))
		msg.Metadata = message.Metadata{key: "payments", "mine": "kept"}
		source := naming.Source{Topic: "orders", Handler: "billing"}
		testkit.Check(t, !queue.isDeadLetter(msg, "orders"), "%s makes a dead-letter topic of a live one", key)
		l := queue.letter(msg, failure, source, false)
		if l.Origin.Topic != "orders" || l.Original.Metadata["mine"] != "kept" || len(l.Original.Metadata) != 1 || l.Failure.Type != "*errors.errorString" {
			t.Errorf("%s: %+v of %q", key, l, l.Original.Metadata)
		}
	}
	back := readForeign(t, "spring").message() // put back into its topic by hand, headers and all
	l := queue.letter(back, failure, naming.Source{Topic: "spring-orders", Handler: "billing"}, false)
	testkit.Check(t, l.Origin.Offset == "200" && l.Origin.Handler == "billing" && l.Failure.Description == "no" &&
		len(l.Original.Metadata) == 1, "%+v of %q", l, l.Original.Metadata)
}

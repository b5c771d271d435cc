package poison

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain/attempts"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/naming"
)

// Feature D7: of several deaths the first that can be believed counts, which none is that a producer of the live topic
// wrote.
func TestFirstHop(t *testing.T) {
	for _, row := range []struct {
		want   string
		topics []string
	}{
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
		got := row.topics[firstHop(row.topics)]
		testkit.Check(t, got == row.want, "%q: believed %q", row.topics, got)
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
		testkit.Check(t, len((*inner)(nil).ProducerMetadata(msg.Metadata)) == 1 && len(Read(msg).Original.Metadata) == 1,
			"%s is taken off", key)
	}
	msg := readForeign(t, "connect").message()
	msg.Metadata[springAttempts], msg.Metadata["kafka_messageKey"] = "\x00\x00\x00\x02", "key"
	l := Read(msg)
	testkit.Check(t, len(l.Original.Metadata) == 3 && l.Failure.Attempts == 0,
		"a letter of Connect's is left with %q", l.Original.Metadata)
	for _, mark := range foreignMarks {
		msg := with(message.NewMessage("", nil), mark, "x")
		testkit.Check(t, isLetter(msg) && len((*inner)(nil).ProducerMetadata(msg.Metadata)) == 0, "%s makes no letter", mark)
	}
}

// Feature V2: an origin that a producer forged in another's words is believed as little as one in ours: a letter that
// the queue writes tells the topic that the message came from.
func TestForgedForeignOrigin(t *testing.T) {
	queue := newQueue(&sink{}, QueueConfig{})
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

func died(deaths string) *message.Message {
	msg := message.NewMessage("id", []byte("{}"))
	msg.Metadata = message.Metadata{keyDeaths: deaths, "x-first-death-queue": "payments", "tenant": "acme"}
	return msg
}

const onceRejected = `{"count":2,"exchange":"shop","queue":"orders","reason":"rejected","routing-keys":["placed"],` +
	`"time":"2023-11-14T22:13:20Z"}`

// Features D7, V2: of several deaths the first that can be believed is the origin: that of the latest queue, or of one
// whose dead letters that queue keeps by its name. A producer can write all entries but the latest.
func TestDeaths(t *testing.T) {
	at, bare := time.Unix(1700000000, 0).UTC(), Origin{Topic: "orders", ConsumerGroup: "orders"}
	shop := Origin{Topic: "orders", ConsumerGroup: "orders", Exchange: "shop", RoutingKey: "placed"}
	of := func(queue, reason string, attempts int, first, last time.Time) Failure {
		return Failure{Reason: strings.ToLower(reason), Attempts: attempts, FirstFailedAt: first, LastFailedAt: last,
			Description: "RabbitMQ dead-lettered it from queue " + queue + ": " + reason}
	}
	var none time.Time
	for name, row := range map[string]struct {
		deaths string
		origin Origin
		want   Failure
	}{
		"rejected": {onceRejected, shop, of("orders", "rejected", 2, at, none)},
		"expired": {`{"count":1,"exchange":"","queue":"orders","reason":"expired","time":"2023-11-14T22:13:20Z"}`,
			bare, of("orders", "expired", 0, at, at)},
		"from its dead letters": {`{"count":1,"queue":"orders.dlq","reason":"maxlen"},` + onceRejected,
			shop, of("orders.dlq", "maxlen", 2, at, none)},
		"forged behind": {onceRejected + `,{"count":9,"queue":"payments","reason":"rejected","time":"1999-01-01T00:00:00Z"}`,
			shop, of("orders", "rejected", 2, at, none)},
		"wrong types behind": {`{"count":"many","exchange":[],"queue":"orders","reason":"delivery_limit",` +
			`"routing-keys":{},"time":1},7,{"queue":{"a":1}},[[]],null,` + onceRejected,
			bare, of("orders", "delivery_limit", 0, none, none)},
		"impossible": {`{"count":-1,"queue":"orders","reason":"REJECTED","time":"yesterday","routing-keys":["` +
			strings.Repeat("k", 300) + `"]}`, bare, of("orders", "REJECTED", 0, none, none)},
	} {
		l, err := Decode(died("[" + row.deaths + "]"))
		testkit.Require(t, err == nil, "%s: %v", name, err)
		own := l.Original.Metadata
		testkit.Check(t, len(own) == 1 && own["tenant"] == "acme", "%s: left on the original: %q", name, own)
		l.Original = nil
		want := Letter{Origin: row.origin, Failure: row.want}
		testkit.Check(t, equalLetters(l, want), "%s: read\n%+v, want\n%+v", name, l, want)
	}
	for name, deaths := range map[string]string{
		"text": "not a table", "empty": "", "no death": "[]", "no table": `["orders"]`, "cut": "[" + onceRejected,
		"no queue": `[{"reason":"rejected"}]`, "no reason": `[{"queue":"orders"}]`, "a number": `[{"queue":7,"reason":"rejected"}]`,
		"long":     `[{"queue":"` + strings.Repeat("q", 256) + `","reason":"rejected"}]`,
		"too much": "[" + onceRejected + strings.Repeat(" ", maxDeaths) + "]", "deep": strings.Repeat("[", 20_000),
	} {
		_, err := Decode(died(deaths))
		testkit.Check(t, errors.Is(err, ErrNotLetter), "%s: %v", name, err)
		testkit.Check(t, len(Read(died(deaths)).Original.Metadata) == 3, "%s: something is taken off", name)
	}
}

// Promise P2: what came through a queue for delays is live, and keeps its x-death in its letter and when it is
// redriven. On a topic of dead letters it is the letter of another, also for the handler there that fails.
func TestDeathsOfLiveMessages(t *testing.T) {
	queue := newQueue(&sink{}, QueueConfig{})
	failure := &classify.Failure{}
	attempts.Add(failure, errors.New("no"), classify.Verdict{Class: classify.ClassPermanent}, longAgo)
	msg := died("[" + onceRejected + "]")
	testkit.Check(t, !isLetter(msg) && !queue.isDeadLetter(msg, "invoices") && len((*inner)(nil).ProducerMetadata(msg.Metadata)) == 3, "it is no letter")
	live := queue.letter(msg.Copy(), failure, naming.Source{Topic: "invoices", Handler: "billing"}, false)
	back := testkit.Must(Decode(live.Encode()))
	testkit.Check(t, back.Origin.Topic == "invoices" && back.Failure.Description == "no" && len(back.Original.Metadata) == 3,
		"%+v of %q", back, back.Original.Metadata)
	dead := queue.letter(msg.Copy(), failure, naming.Source{Topic: "orders.dlq", Handler: "billing"}, queue.isDeadLetter(msg, "orders.dlq"))
	testkit.Check(t, dead.Origin.Topic == "orders" && dead.Failure.Description == "no" && len(dead.Original.Metadata) == 1,
		"%+v of %q", dead, dead.Original.Metadata)
}

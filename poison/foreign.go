package poison

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
)

// The headers of Spring Kafka's DeadLetterPublishingRecoverer, as of 3.3. For retry topics it writes them without
// "dlt-", but for the consumer group. Numbers are big-endian: 4 bytes a partition, 8 an offset and milliseconds.
const (
	springTopic          = "kafka_dlt-original-topic"
	springException      = "kafka_dlt-exception-fqcn"
	springRetryTopic     = "kafka_original-topic"
	springRetryException = "kafka_exception-fqcn"
	springGroup          = "kafka_dlt-original-consumer-group"
	springDelivery       = "kafka_deliveryAttempt" // 4 bytes, where the container was told to write it
	// 4 bytes, one in old versions: of the attempt that comes next
	springAttempts = "retry_topic-attempts"
	springDue      = "retry_topic-backoff-timestamp" // as many bytes as it takes: when that one is due
)

// The headers of Kafka Connect's DeadLetterQueueReporter, as of 3.9. Numbers are decimal text.
const connectTopic = "__connect.errors.topic"

// foreignMarks are the headers of which any one makes a letter. The others do not: retry topics and listeners write
// some of them on messages that never failed for good.
var foreignMarks = [...]string{springTopic, springException, springRetryTopic, springRetryException, connectTopic,
	streamsTopic, streamsException, shareTopic}

func isForeign(metadata message.Metadata) bool {
	for _, key := range foreignMarks {
		if _, ok := metadata[key]; ok {
			return true
		}
	}
	return false
}

// readSpring takes the type of Spring's own wrapper for the outer one, and that of the listener's exception for the
// inner.
func (l *Letter) readSpring(r reader) {
	if l.Origin.Topic == "" {
		prefix := "kafka_dlt-original-"
		if r[springTopic] == "" {
			prefix = "kafka_original-"
		}
		l.Origin.Topic = r.whole(prefix + "topic")
		l.Origin.Partition = decimal(bigEndian(r[prefix+"partition"], 4, 4))
		l.Origin.Offset = decimal(bigEndian(r[prefix+"offset"], 8, 8))
		l.Origin.Timestamp = millis(bigEndian(r[prefix+"timestamp"], 8, 8))
		l.Origin.ConsumerGroup = cmp.Or(l.Origin.ConsumerGroup, r.whole(springGroup))
	}
	for _, prefix := range [...]string{"kafka_dlt-exception-", "kafka_dlt-key-exception-", "kafka_exception-",
		"kafka_key-exception-"} {
		outer, inner := r.bounded(prefix+"fqcn"), r.bounded(strings.Replace(prefix, "key-", "", 1)+"cause-fqcn")
		if l.Failure.Type = outer; inner != outer && inner != "" {
			l.Failure.Type = strings.TrimPrefix(outer+" > "+inner, " > ")
		}
		l.Failure.Description = r.bounded(prefix + "message")
		l.readJavaStack(r, prefix+"stacktrace")
		if outer+l.Failure.Description+l.Failure.Stack != "" {
			break
		}
	}
	next, ok := bigEndian(r[springAttempts], 4, 4)
	if !ok {
		next, ok = bigEndian(r[springAttempts], 1, 1)
	}
	if ok {
		l.Failure.Attempts = boundedtext.Count(decimal(next-1, true))
		// nothing waits on its way to the dead letters
		l.Failure.LastFailedAt = millis(bigEndian(r[springDue], 1, 8))
	} else {
		l.Failure.Attempts = boundedtext.Count(decimal(bigEndian(r[springDelivery], 4, 4)))
	}
}

// readConnect takes the connector for the handler, and the stage that failed for the reason.
func (l *Letter) readConnect(r reader) {
	const prefix = "__connect.errors."
	if l.readPlace(r, prefix) {
		l.Origin.Handler = cmp.Or(l.Origin.Handler, r.whole(prefix+"connector.name"))
	}
	l.Failure.Reason = strings.ToLower(boundedtext.Text(r[prefix+"stage"], 128))
	l.Failure.Type = r.bounded(prefix + "exception.class.name")
	l.Failure.Description = strings.TrimSpace(r.bounded(prefix + "exception.message"))
	if class, task := r.whole(prefix+"class.name"), decimal(parse(r[prefix+"task.id"], 32)); class != "" {
		l.Failure.Description = boundedtext.Text(strings.TrimSpace(l.Failure.Description+" (in "+class+", task "+task+")"),
			MaxAdded)
	}
	l.readJavaStack(r, prefix+"exception.stacktrace")
}

// readJavaStack hashes the frames alone: messages stand between them, which differ for the same cause.
func (l *Letter) readJavaStack(r reader, key string) {
	l.Failure.Stack = r.bounded(key)
	var frames strings.Builder
	for line := range strings.Lines(r[key][:min(len(r[key]), maxText)]) {
		if strings.HasPrefix(line, "\tat ") {
			frames.WriteString(line)
		}
	}
	l.Failure.StackHash = hashStack(frames.String())
}

// bigEndian reads a number that Java wrote. A negative one stands for nothing, and is read as that.
func bigEndian(value string, least, most int) (n int64, ok bool) {
	if len(value) < least || len(value) > most || value[0] >= 0x80 {
		return 0, false
	}
	for _, b := range []byte(value) {
		n = n<<8 | int64(b)
	}
	return n, true
}

func parse(value string, bits int) (n int64, ok bool) {
	n, err := strconv.ParseInt(value, 10, bits)
	return n, err == nil && n >= 0
}

func decimal(n int64, ok bool) string {
	if !ok {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func millis(n int64, ok bool) time.Time {
	if t := time.UnixMilli(n).UTC(); ok && n > 0 && t.Year() <= 9999 {
		return t
	}
	return time.Time{}
}

// firstHop returns the index of the first of topics that is believed, or -1 where there are none. A message that was
// set aside twice has two, the first one first. But a producer of the live topic can write such a list too. So the last
// is believed, because the writer of the letter added it, and the one before it only where the last is its dead-letter
// topic by name.
func firstHop(topics []string) int {
	at := len(topics) - 1
	for at > 0 && keepsLettersOf(topics[at], topics[at-1]) {
		at--
	}
	return at
}

// keepsLettersOf reports whether dead is a name for the dead letters of topic, such as orders.dlq.
func keepsLettersOf(dead, topic string) bool {
	suffix, ok := strings.CutPrefix(dead, topic)
	return ok && topic != "" && len(suffix) == len("-dlt") && strings.Contains("-._", suffix[:1]) &&
		(strings.EqualFold(suffix[1:], "dlt") || strings.EqualFold(suffix[1:], "dlq"))
}

// RabbitMQ's x-death is a list of tables, one for each queue and reason, the latest death first. Package wmamqp makes
// JSON of it. RabbitMQ writes it too on what expired in a queue for delays and is live again. So x-death makes a letter
// only where letters are read, and only without another failure.
const (
	keyDeaths  = "x-death"
	maxDeaths  = 64 << 10 // bytes
	maxRoute   = 255      // bytes of AMQP's names
	atRejected = "rejected"
)

// death is what RabbitMQ says of the deaths of a message in one queue, for one reason.
type death struct {
	queue, reason, exchange, routingKey string
	count                               int
	at                                  time.Time // of the first of them, to the second
}

// deathsOf returns the deaths of a message, the first one first. The broker wrote the latest. A producer can write
// others: what is no entry ends the list, and all before it.
func deathsOf(metadata message.Metadata) []death {
	encoded, ok := metadata[keyDeaths]
	if !ok || len(encoded) > maxDeaths {
		return nil
	}
	var entries []map[string]any
	var mistyped *json.UnmarshalTypeError // an element that is no table, and is nil then
	if err := json.Unmarshal([]byte(encoded), &entries); err != nil && !errors.As(err, &mistyped) {
		return nil
	}
	deaths := make([]death, 0, len(entries))
	for _, entry := range entries {
		d := death{queue: nameIn(entry["queue"]), reason: nameIn(entry["reason"]), exchange: nameIn(entry["exchange"])}
		if d.queue == "" || d.reason == "" {
			break
		}
		if n, isNumber := entry["count"].(float64); isNumber && n >= 0 && n <= 1_000_000 {
			d.count = int(n)
		}
		if keys, _ := entry["routing-keys"].([]any); len(keys) > 0 {
			d.routingKey = nameIn(keys[0])
		}
		if at, isText := entry["time"].(string); isText {
			d.at = boundedtext.Time(at)
		}
		deaths = append(deaths, d)
	}
	slices.Reverse(deaths)
	return deaths
}

func nameIn(value any) string {
	if name, _ := value.(string); len(name) <= maxRoute {
		return name
	}
	return ""
}

// readDeaths takes the queue of the first death that can be believed for the topic, and the latest death for the
// failure. The x-first-death- headers are not read: a producer can write them with an x-death of its own.
func (l *Letter) readDeaths(deaths []death) {
	if len(deaths) == 0 {
		return
	}
	queues := make([]string, len(deaths))
	for i, d := range deaths {
		queues[i] = d.queue
	}
	origin, last := deaths[firstHop(queues)], deaths[len(deaths)-1]
	if l.Origin.Topic == "" {
		l.Origin.Topic = origin.queue
		l.Origin.ConsumerGroup, l.Origin.Exchange, l.Origin.RoutingKey = origin.queue, origin.exchange, origin.routingKey
	}
	l.Failure.Reason = boundedtext.Text(strings.ToLower(last.reason), 128)
	l.Failure.Description = boundedtext.Text("RabbitMQ dead-lettered it from queue "+last.queue+": "+last.reason,
		MaxAdded)
	l.Failure.FirstFailedAt = origin.at
	if last.count <= 1 { // of later deaths in the same way the broker keeps the first time
		l.Failure.LastFailedAt = last.at
	}
	for _, d := range deaths {
		if d.queue == origin.queue && d.reason == atRejected {
			l.Failure.Attempts = d.count
		}
	}
}

// The headers that Kafka itself writes. Numbers are decimal text. Kafka Streams (KIP-1034, as of 4.2) keeps the headers
// of the record that failed, and adds its own. A share group (KIP-1191, as of 4.4) keeps none.
const (
	streamsTopic     = "__streams.errors.topic"     // null where no record failed, but a punctuation
	streamsException = "__streams.errors.exception" // the first versions wrote the message behind it
	shareTopic       = "__dlq.errors.topic"
)

func (l *Letter) readStreams(r reader) {
	const prefix = "__streams.errors."
	l.readPlace(r, prefix)
	l.Failure.Type, _, _ = strings.Cut(r.bounded(streamsException), ": ")
	l.Failure.Description = strings.TrimSpace(r.bounded(prefix + "message"))
	l.readJavaStack(r, prefix+"stacktrace")
}

// readShare leaves out the place of a record that the broker did not copy, which is its default: nothing is there to
// redrive, and an empty message would be a tombstone.
func (l *Letter) readShare(r reader) {
	const prefix = "__dlq.errors."
	if l.readPlace(r, prefix) {
		l.Origin.ConsumerGroup = cmp.Or(l.Origin.ConsumerGroup, r.whole(prefix+"group"))
	}
	l.Failure.Attempts = boundedtext.Count(r[prefix+"delivery.count"])
	l.Failure.Description = strings.TrimSpace(r.bounded(prefix + "message"))
	if o := &l.Origin; len(l.Original.Payload) == 0 && len(o.Key) == 0 && o.Topic != "" {
		l.Failure.Description = boundedtext.Text(l.Failure.Description+" The broker kept no copy: the record is in "+
			o.Topic+", partition "+o.Partition+", offset "+o.Offset+
			". Set errors.deadletterqueue.copy.record.enable for the group.", MaxAdded)
		o.Topic, o.Partition, o.Offset = "", "", ""
	}
}

// readPlace reads where a record stood, unless that is known.
func (l *Letter) readPlace(r reader, prefix string) bool {
	if l.Origin.Topic != "" {
		return false
	}
	l.Origin.Topic = r.whole(prefix + "topic")
	l.Origin.Partition = decimal(parse(r[prefix+"partition"], 32))
	l.Origin.Offset = decimal(parse(r[prefix+"offset"], 64))
	return true
}

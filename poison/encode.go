package poison

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/binary"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/upstream/destination"
)

// limits bound what a letter adds to the original message, in bytes of keys and values.
type limits struct{ total, description, stack, history int }

// MaxAdded is the most bytes of metadata that a letter adds to its message, without Watermill's keys. AMQP carries all
// headers in one frame of 128 KiB, and a record of Kafka's default size must still fit with them. What a publisher
// refuses for its size is cut to less.
const MaxAdded = 16 << 10

const (
	maxIdentity = 4 << 10 // a longer id, key or name is left out: half of one would name something else
	maxType     = 512
	maxHistory  = 3 << 10
)

var (
	defaultLimits = limits{total: MaxAdded, description: 4 << 10, stack: 8 << 10, history: maxHistory}
	shrunkLimits  = limits{total: 3 << 10, description: 256} // room for the longest reason, and a topic of 2 KiB
	leastLimits   = limits{total: 256, description: 64}      // what makes a letter one
	countLimits   = limits{total: len(KeyRedriveCount) + 7}  // and nothing else
)

// within are limits that also keep the budget of l.
func (l limits) within(smaller limits) limits {
	smaller.total = min(l.total, smaller.total)
	return smaller
}

// shrinking are the steps for a letter that is refused for its size. The first is tried again, because a client may
// have sent the letter in one batch with a message that was too large.
func (l limits) shrinking(form rawForm) []limits {
	if form != whole {
		return []limits{l, l}
	}
	return []limits{l, l, l.within(shrunkLimits), l.within(leastLimits)}
}

// Encode returns the letter as a message to publish: a copy of the original with the keys of this package added, at
// most MaxAdded bytes. Texts that are too long keep their heads, with a mark where they were cut.
func (l Letter) Encode() *message.Message { return l.encode(defaultLimits) }

// encode writes the class if there is a failure, and never on a message that is redriven.
func (l *Letter) encode(max limits) *message.Message {
	original := l.Original
	if original == nil {
		original = message.NewMessage("", nil)
	}
	msg := message.NewMessageWithContext(original.Context(), original.UUID, original.Payload)
	msg.Metadata = make(message.Metadata, len(original.Metadata)+20)
	maps.Copy(msg.Metadata, original.Metadata)
	l.markSealed(msg)
	w := writer{to: msg.Metadata, left: max.total}

	l.writeFirst(&w)
	if !l.redriven { // in a live topic it is the producer's word
		w.pack(original)
	}
	l.writeRest(&w, max)
	return msg
}

// writeFirst writes what makes a letter one.
func (l *Letter) writeFirst(w *writer) {
	if !l.redriven {
		w.set(KeyFailureClass, l.Failure.Class.String())
	}
	w.count(KeyRetryStage, &l.stage.Number)
	w.time(KeyRetryDueAt, &l.stage.DueAt)
	w.time(KeyRetryHoldUntil, &l.stage.HoldUntil)
	l.first(w)
}

// writeRest writes what places and explains the failure.
func (l *Letter) writeRest(w *writer, max limits) {
	key := string(l.Origin.Key)
	w.identity(KeyOriginalKey, &key)
	l.rest(w, max)
	w.set(KeyAttemptHistory, encodeHistory(l.Failure.History, min(max.history, w.left-len(KeyAttemptHistory))))
}

// visitor is called with the fields of a letter, to write or to read them.
type visitor interface {
	identity(key string, value *string)
	text(key string, value *string, limit int)
	count(key string, value *int)
	time(key string, value *time.Time)
}

// first visits fields in the order of what a tight budget must not cut. Counts come first: a redrive without its count
// would never end.
func (l *Letter) first(v visitor) {
	v.count(KeyRedriveCount, &l.Redrive.Count)
	v.count(KeyAttempts, &l.Failure.Attempts)
	v.text(KeyFailureReason, &l.Failure.Reason, 128)
	v.identity(KeyOriginalTopic, &l.Origin.Topic)
	v.identity(KeyOriginalHandler, &l.Origin.Handler)
}

// rest visits the others, the longest last.
func (l *Letter) rest(v visitor, max limits) {
	v.identity(KeyEarlierTrace, &l.Trace)
	v.time(KeyFirstFailedAt, &l.Failure.FirstFailedAt)
	v.time(KeyLastFailedAt, &l.Failure.LastFailedAt)
	v.time(KeyRedrivenAt, &l.Redrive.At)
	v.text(KeyRedrivenBy, &l.Redrive.By, 128)
	v.text(KeyRedriveID, &l.Redrive.ID, 128)
	v.identity(KeyRedrivenLetter, &l.Redrive.Letter)
	v.identity(KeyOriginalPartition, &l.Origin.Partition)
	v.identity(KeyOriginalOffset, &l.Origin.Offset)
	v.time(KeyOriginalTimestamp, &l.Origin.Timestamp)
	v.identity(KeyOriginalGroup, &l.Origin.ConsumerGroup)
	v.identity(KeyOriginalMessageID, &l.Origin.MessageID)
	v.identity(KeyOriginalExchange, &l.Origin.Exchange)
	v.identity(KeyOriginalRoutingKey, &l.Origin.RoutingKey)
	v.text(KeyFailureNode, &l.Failure.Node, 128)
	v.text(KeyFailureStackHash, &l.Failure.StackHash, 32)
	v.text(KeyFailureType, &l.Failure.Type, maxType)
	v.text(KeyFailureDescription, &l.Failure.Description, max.description)
	v.text(KeyFailureStack, &l.Failure.Stack, max.stack)
}

// addWatermill adds the keys of Watermill's PoisonQueue, for consumers that were written for them.
func (l *Letter) addWatermill(msg *message.Message, subscriber string, max limits) {
	each := min(1<<10, max.description)
	msg.Metadata[keyWatermillReason] = boundedtext.Text(l.Failure.Description, each)
	msg.Metadata[keyWatermillTopic] = boundedtext.Text(l.Origin.Topic, each)
	msg.Metadata[keyWatermillHandler] = boundedtext.Text(l.Origin.Handler, each)
	msg.Metadata[keyWatermillSubscriber] = boundedtext.Text(subscriber, each)
}

// writer sets metadata within a budget.
type writer struct {
	to    message.Metadata
	left  int
	ascii bool // nothing but printable ASCII
}

// identity writes value whole or not at all; what is not text of one line is base64 under its own key.
func (w *writer) identity(key string, value *string) {
	if len(*value) > maxIdentity {
		return
	}
	if !isLine(*value) || w.ascii && !isASCII(*value) {
		w.set(key+Base64Suffix, base64.StdEncoding.EncodeToString([]byte(*value)))
		return
	}
	w.set(key, *value)
}

// text writes as much of value as fits, its cut marked, in one line.
func (w *writer) text(key string, value *string, limit int) {
	text := oneLine(*value, min(limit, w.left-len(key)))
	if w.ascii {
		text = toASCII(text)
	}
	w.set(key, text)
}

func (w *writer) count(key string, n *int) {
	if *n > 0 {
		w.set(key, strconv.Itoa(*n))
	}
}

func (w *writer) time(key string, t *time.Time) {
	if at := boundedtext.Moment(*t); !at.IsZero() {
		w.set(key, at.Format(time.RFC3339Nano))
	}
}

func (w *writer) set(key, value string) {
	if cost := len(key) + len(value); value != "" && cost <= w.left {
		w.to[key] = value
		w.left -= cost
	}
}

const (
	maxPacked   = 32 << 10 // of base64: half of the room that Kafka's dead-letter topics have for a letter
	maxUnpacked = 1 << 20  // a broker's default limit for a whole message
)

// pack keeps the id and the metadata of the original that a transport with headers like those of HTTP would change or
// lose, in half of what is left of the budget. They also stay where they are, apart from orders to a NATS server, until
// a publisher refuses them (offer).
func (w *writer) pack(original *message.Message) {
	endangered := message.Metadata{}
	for key, value := range original.Metadata {
		if !isHeaderName(key) || !isLine(value) {
			endangered[key] = value
		}
	}
	if len(endangered) == 0 && isLine(original.UUID) {
		return
	}
	encoded := packMetadata(original.UUID, endangered, min(maxPacked, (w.left-len(KeyOriginalMetadata))/2))
	if encoded == "" {
		return
	}
	w.set(KeyOriginalMetadata, encoded)
	for key := range endangered {
		if isOrder(key) {
			delete(w.to, key)
		}
	}
}

// offer publishes messages. One that pub refuses for what it carries is offered once more, without what is packed in it.
func offer(pub message.Publisher, topic string, messages ...*message.Message) error {
	err := pub.Publish(topic, messages...)
	if err != nil && len(messages) == 1 && destination.IsRefused(err) && leavePacked(messages[0]) {
		err = pub.Publish(topic, messages...)
	}
	return err
}

// leavePacked removes the metadata that are packed too, and reports whether there were any.
func leavePacked(msg *message.Message) bool {
	l := Letter{Original: message.NewMessage("", nil)}
	l.unpack(msg.Metadata[KeyOriginalMetadata])
	before := len(msg.Metadata)
	for key, value := range l.Original.Metadata {
		if msg.Metadata[key] == value {
			delete(msg.Metadata, key)
		}
	}
	return len(msg.Metadata) < before
}

// unpackInto restores the id and the metadata of a message that comes out of a retry stage.
func unpackInto(msg *message.Message) {
	packed := msg.Metadata[KeyOriginalMetadata]
	if packed == "" {
		return
	}
	l := Letter{Original: msg}
	l.unpack(packed)
	delete(msg.Metadata, KeyOriginalMetadata)
}

// packMetadata returns the id, keys and values as base64 of compressed fields, each with its length in front, or "" if
// that is longer than limit.
func packMetadata(id string, metadata message.Metadata, limit int) string {
	if size := len(id) + sizeOf(metadata) + 10*(2*len(metadata)+1); size > maxUnpacked {
		return ""
	}
	var compressed bytes.Buffer
	to, _ := flate.NewWriter(&compressed, flate.DefaultCompression) // the level is one that there is
	field := func(s string) {
		_, _ = to.Write(binary.AppendUvarint(nil, uint64(len(s))))
		_, _ = io.WriteString(to, s)
	}
	field(id)
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		field(key)
		field(metadata[key])
	}
	if err := to.Close(); err != nil || base64.StdEncoding.EncodedLen(compressed.Len()) > limit {
		return ""
	}
	return base64.StdEncoding.EncodeToString(compressed.Bytes())
}

// unpack restores the id and the metadata that raw or pack wrote. The value may be forged: what is not of this form
// changes nothing, and none of our keys comes out of it.
func (l *Letter) unpack(encoded string) {
	if encoded == "" || len(encoded) > maxPacked {
		return
	}
	compressed, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return
	}
	fields, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(compressed)), maxUnpacked+1))
	if err != nil || len(fields) > maxUnpacked {
		return
	}
	var values []string
	for len(fields) > 0 {
		size, n := binary.Uvarint(fields)
		if n <= 0 || size > uint64(len(fields)-n) {
			return
		}
		end := n + int(size)
		values, fields = append(values, string(fields[n:end])), fields[end:]
	}
	if len(values)%2 != 1 {
		return
	}
	metadata := maps.Clone(l.Original.Metadata)
	if metadata == nil {
		metadata = message.Metadata{}
	}
	for pair := range slices.Chunk(values[1:], 2) {
		if ours[pair[0]]&byUs == 0 {
			metadata[pair[0]] = pair[1]
		}
	}
	l.Original.UUID, l.Original.Metadata = values[0], metadata
}

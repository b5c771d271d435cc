package wmkafka

import (
	"encoding/base64"
	"errors"
	"slices"
	"strings"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/deadletter"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/poison"
)

// Marshaler turns messages into records and back, so that a dead letter preserves its record: the key, each of several
// headers of one name, null values, any bytes. The zero value is ready to use, with this package's Subscriber and
// Publisher and with those of watermill-kafka.
//
// A dead letter and a redriven message get the key that their record first had. Only messages that Spillway itself
// publishes do, and letters in a topic for letters by Naming. In a message that a handler produces, the metadata may be
// a producer's, who could choose the record key so. Unmarshal returns no error: a record that Inner cannot read becomes
// a message that a poison.Queue dead-letters.
type Marshaler struct {
	// Inner is another format, or one that sets keys, such as kafka.NewWithPartitioningMarshaler. Its keys are used for
	// messages that have no key to preserve. Default: watermill-kafka's format, without keys.
	Inner kafka.MarshalerUnmarshaler
	// Naming names the topics that hold only dead letters, or messages that wait for a retry. Letters that other code
	// publishes there, such as Watermill's PoisonQueue, keep their keys. Give the Scheme that the channel has. Default:
	// <topic>.dlq, <topic>.invalid, and so on.
	Naming naming.Scheme
}

var _ kafka.MarshalerUnmarshaler = Marshaler{}

// Marshal returns the record for msg. An error says what Inner refused.
func (m Marshaler) Marshal(topic string, msg *message.Message) (*sarama.ProducerMessage, error) {
	if msg == nil {
		return nil, errors.New("wmkafka: cannot marshal a nil message")
	}
	kept, isKept := carriedBy(msg)
	returns := m.isReturning(topic, msg)
	var record *sarama.ProducerMessage
	if m.Inner == nil || kept.Unreadable && returns { // what was never read is not written again in Inner's words
		record = plainRecord(topic, msg, isKept)
	} else {
		var err error
		if record, err = m.inner(topic, msg, isKept); err != nil {
			if !returns {
				return nil, err
			}
			record = plainRecord(topic, msg, isKept) // Inner would refuse the letter each time
		}
	}
	if returns || ofRecord(msg) {
		kept.restoreHeaders(record)
	}
	if returns {
		restoreKey(record, msg, kept)
	}
	return record, nil
}

// ofRecord reports whether msg itself came from our subscriber, which then wrote its KeyRecord.
func ofRecord(msg *message.Message) bool {
	_, ours := msg.Context().Value(recordContextKey{}).(*recordContext)
	return ours
}

// Unmarshal returns the message of a record. The error is always nil.
func (m Marshaler) Unmarshal(record *sarama.ConsumerMessage) (*message.Message, error) {
	if m.Inner == nil {
		clip(record)
		msg := plainMessage(record)
		carry(msg, record, false)
		tellKey(msg, record)
		return msg, nil
	}
	msg := read(m.Inner, record)
	if deadletter.Marked(msg.Metadata[deadletter.KeyMarked]) == nil {
		if isCarried(msg.Metadata[KeyRecord]) {
			delete(msg.Metadata, KeyRecord)
		}
		msg.Metadata = fromWire(msg.Metadata)
		carry(msg, record, false)
		tellKey(msg, record)
	}
	return msg, nil
}

// inner has Inner marshal what of msg belongs on the wire.
func (m Marshaler) inner(topic string, msg *message.Message, isKept bool) (record *sarama.ProducerMessage, err error) {
	wire := msg.CopyWithContext()
	wire.Metadata = make(message.Metadata, len(msg.Metadata))
	for key, value := range msg.Metadata {
		if key != KeyRecord || !isKept {
			wire.Metadata[headerName(key)] = value
		}
	}
	err = safecall.Call("wmkafka: marshaler", func() (err error) {
		record, err = m.Inner.Marshal(topic, wire)
		return err
	})
	if err == nil && record == nil {
		err = errors.New("wmkafka: the marshaler returned neither a record nor an error")
	}
	return record, err
}

// plainRecord writes watermill-kafka's format: the id in a header, and a header for each key of the metadata, in order.
// An empty id has no header, as records of other producers have none.
func plainRecord(topic string, msg *message.Message, isKept bool) *sarama.ProducerMessage {
	record := &sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(msg.Payload)}
	record.Headers = make([]sarama.RecordHeader, 0, len(msg.Metadata)+1)
	size := len(kafka.UUIDHeaderKey) + len(msg.UUID)
	keys := make([]string, 0, len(msg.Metadata))
	for key, value := range msg.Metadata {
		if key != KeyRecord || !isKept {
			keys = append(keys, key)
			size += len(headerName(key)) + len(value)
		}
	}
	slices.Sort(keys)
	text := make(headersText, 0, size)
	if msg.UUID != "" {
		record.Headers = append(record.Headers, text.header(kafka.UUIDHeaderKey, msg.UUID))
	}
	for _, key := range keys {
		record.Headers = append(record.Headers, text.header(headerName(key), msg.Metadata[key]))
	}
	return record
}

// headersText holds the names and values of a record's headers: each by itself would cost two allocations, and a letter
// has some twenty.
type headersText []byte

func (t *headersText) header(key, value string) sarama.RecordHeader {
	return sarama.RecordHeader{Key: t.put(key), Value: t.put(value)}
}

func (t *headersText) put(text string) []byte {
	from := len(*t)
	*t = append(*t, text...)
	return (*t)[from:len(*t):len(*t)]
}

// fewHeaders is what a message's own map takes without growing.
const fewHeaders = 8

// plainMessage reads watermill-kafka's format. Any record can be read as that.
func plainMessage(record *sarama.ConsumerMessage) *message.Message {
	msg := message.NewMessage("", record.Value)
	if len(record.Headers) > fewHeaders {
		msg.Metadata = make(message.Metadata, len(record.Headers))
	}
	text := headerText(record.Headers)
	cut := func(of []byte) (s string) {
		if len(of) > len(text) {
			return string(of)
		}
		s, text = text[:len(of)], text[len(of):]
		return s
	}
	for _, h := range record.Headers {
		if h == nil {
			continue
		}
		name, value := cut(h.Key), cut(h.Value)
		switch {
		case name == kafka.UUIDHeaderKey:
			msg.UUID = value
		case name == KeyRecord && isCarried(value): // Marshal writes none: it is forged
		default:
			msg.Metadata[metadataKey(name)] = value
		}
	}
	return msg
}

// maxHeaderText bounds what is kept of a message's headers by one that is kept.
const maxHeaderText = 1 << 10

// headerText is the headers' names and values in one string, of which the metadata's are parts: a header alone would
// cost two allocations. It is "" if they are too long for that.
func headerText(headers []*sarama.RecordHeader) string {
	n := 0
	for _, h := range headers {
		if h != nil {
			n += len(h.Key) + len(h.Value)
		}
	}
	if n == 0 || n > maxHeaderText {
		return ""
	}
	var text strings.Builder
	text.Grow(n)
	for _, h := range headers {
		if h != nil {
			text.Write(h.Key)
			text.Write(h.Value)
		}
	}
	return text.String()
}

// A metadata key that is watermill-kafka's header for the id would fail every marshaler of watermill-kafka, or read as
// the id. It travels with a prefix, and so does one that already looks as if it did: no two become one.
const reservedPrefix = "x-kafka-"

func headerName(key string) string {
	if isReserved(key) {
		return reservedPrefix + key
	}
	return key
}

func metadataKey(header string) string {
	if rest, ok := strings.CutPrefix(header, reservedPrefix); ok && isReserved(rest) {
		return rest
	}
	return header
}

func isReserved(key string) bool {
	rest, ok := strings.CutSuffix(key, kafka.UUIDHeaderKey)
	for ok && rest != "" {
		rest, ok = strings.CutPrefix(rest, reservedPrefix)
	}
	return ok
}

func fromWire(metadata message.Metadata) message.Metadata {
	for header := range metadata {
		if metadataKey(header) != header {
			own := make(message.Metadata, len(metadata))
			for header, value := range metadata {
				own[metadataKey(header)] = value
			}
			return own
		}
	}
	return metadata
}

// isReturning reports whether msg came from a topic and is kept or brought back: a dead letter, one that waits for a
// retry, one that was redriven. Metadata alone can say so of any message. So it must be Spillway that publishes it, or
// its topic must be one for letters.
func (m Marshaler) isReturning(topic string, msg *message.Message) bool {
	if !inside.Poison.IsLetter(msg) && !has(msg, poison.KeyRetryStage) && !has(msg, poison.KeyRedriveCount) {
		return false
	}
	return chain.IsReturning(msg.Context()) || inside.Poison.IsLetter(msg) && m.takesLetters(topic)
}

// takesLetters reports whether topic holds only letters, or messages that wait for a retry.
func (m Marshaler) takesLetters(topic string) bool {
	return m.Naming.IsDeadLetter(topic) || m.Naming.IsStage(topic)
}

func has(msg *message.Message, key string) bool {
	_, ok := msg.Metadata[key]
	return ok
}

// restoreKey gives the record the key that the message's first record had. What a handler produced from a redriven
// message, metadata and all, goes elsewhere than the message itself: there Inner's key counts.
func restoreKey(record *sarama.ProducerMessage, msg *message.Message, kept carried) {
	home := inside.Poison.IsLetter(msg) || has(msg, poison.KeyRetryStage) ||
		record.Topic == msg.Metadata[poison.KeyOriginalTopic]
	if !home && record.Key != nil {
		return
	}
	key, ok := originalKey(msg, kept)
	if !ok && home { // a queue without Origin does not write it, but the context still knows
		key, _ = kafka.MessageKeyFromCtx(msg.Context())
		ok = key != nil
	}
	if ok {
		record.Key = sarama.ByteEncoder(key)
	}
}

func originalKey(msg *message.Message, kept carried) ([]byte, bool) {
	if key, ok := msg.Metadata[poison.KeyOriginalKey]; ok && len(key) <= maxCarried {
		return []byte(key), true
	}
	if encoded := msg.Metadata[poison.KeyOriginalKey+poison.Base64Suffix]; encoded != "" && len(encoded) <= maxCarried {
		if key, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			return key, true
		}
	}
	return kept.Key, kept.Key != nil
}

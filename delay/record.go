package delay

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// record is a message as it goes into a row. Everything in it may hold any bytes.
type record struct {
	topic    string
	msg      *message.Message
	metadata []byte
}

func newRecord(topic string, msg *message.Message) record {
	return record{topic: topic, msg: msg, metadata: encodeMetadata(msg.Metadata)}
}

// size is about what the row takes, in the database and in memory.
func (r record) size() int {
	return len(r.topic) + len(r.msg.UUID) + len(r.metadata) + len(r.msg.Payload)
}

// args are what statements.put binds.
func (r record) args(after time.Duration) []any {
	var payload any // a nil []byte is NULL to some drivers, and empty to others
	if r.msg.Payload != nil {
		payload = []byte(r.msg.Payload)
	}
	us := after.Microseconds()
	return []any{[]byte(r.topic), []byte(r.msg.UUID), r.metadata, payload, r.size(), us, us}
}

// decode is the way back: the message as it was put, with a context of its own. No metadata is an empty one.
func decode(id, metadata, payload []byte, hasPayload bool) (*message.Message, error) {
	decoded, err := decodeMetadata(metadata)
	if err != nil {
		return nil, err
	}
	if hasPayload && payload == nil { // an empty BLOB reads as nil in some drivers; brokers tell empty from none
		payload = []byte{}
	}
	msg := message.NewMessage(string(id), payload)
	msg.Metadata = decoded
	msg.SetContext(context.Background())
	return msg, nil
}

const metadataVersion = 1

// encodeMetadata writes each key and value with its length in front, so that any bytes survive.
func encodeMetadata(metadata message.Metadata) []byte {
	size := 1
	for key, value := range metadata {
		size += len(key) + len(value) + 4
	}
	encoded := append(make([]byte, 0, size), metadataVersion)
	for key, value := range metadata {
		encoded = appendBytes(appendBytes(encoded, key), value)
	}
	return encoded
}

var errMetadata = errors.New("the metadata column is damaged, or of another version")

func decodeMetadata(encoded []byte) (message.Metadata, error) {
	if len(encoded) == 0 || encoded[0] != metadataVersion {
		return nil, errMetadata
	}
	metadata := make(message.Metadata)
	for rest := encoded[1:]; len(rest) > 0; {
		var key, value string
		var ok bool
		if key, rest, ok = cutBytes(rest); !ok {
			return nil, errMetadata
		}
		if value, rest, ok = cutBytes(rest); !ok {
			return nil, errMetadata
		}
		metadata[key] = value
	}
	return metadata, nil
}

func appendBytes(to []byte, s string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(s))), s...)
}

func cutBytes(from []byte) (s string, rest []byte, ok bool) {
	n, width := binary.Uvarint(from)
	if width <= 0 || n > uint64(len(from)-width) {
		return "", nil, false
	}
	from = from[width:]
	return string(from[:n]), from[n:], true
}

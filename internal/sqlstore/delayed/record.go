package delayed

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
)

// record is a message as it goes into a row. Everything in it may hold any bytes.
type record struct {
	service  string
	topic    string
	msg      *message.Message
	metadata []byte
}

func newRecord(service, topic string, msg *message.Message) record {
	return record{service: service, topic: topic, msg: msg, metadata: metadatacodec.Metadata(msg.Metadata)}
}

// size is about what the row takes, in the database and in memory.
func (r record) size() int {
	return len(r.service) + len(r.topic) + len(r.msg.UUID) + len(r.metadata) + len(r.msg.Payload)
}

// args are what statements.put binds.
func (r record) args(after time.Duration) []any {
	var payload any // a nil []byte is NULL to some drivers, and empty to others
	if r.msg.Payload != nil {
		payload = []byte(r.msg.Payload)
	}
	us := after.Microseconds()
	return []any{[]byte(r.service), []byte(r.topic), []byte(r.msg.UUID), r.metadata, payload, r.size(), us, us}
}

// decode is the way back: the message as it was put, with a context of its own. No metadata is an empty one.
func decode(id, metadata, payload []byte, hasPayload bool) (*message.Message, error) {
	decoded, err := metadatacodec.Read(metadata)
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

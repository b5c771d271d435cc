package streams

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/poison"
)

// Marshaler writes and reads every message. Watermill's own refuses to write one key of metadata. With the error of its
// reading, the subscription ends, and so does each later one that claims the message.
type Marshaler struct {
	// Unmarshaler reads what Watermill's marshaler has written, or what other producers write. Default: Watermill's
	// own.
	Unmarshaler redisstream.Unmarshaller
}

// reservedField holds the metadata that Watermill's marshaler refuses.
const reservedField = "metadata." + redisstream.UUIDHeaderKey

// Marshal returns the fields of an entry.
func (Marshaler) Marshal(topic string, msg *message.Message) (map[string]any, error) {
	stock := redisstream.DefaultMarshallerUnmarshaller{}
	reserved, ok := msg.Metadata[redisstream.UUIDHeaderKey]
	if !ok {
		return stock.Marshal(topic, msg)
	}
	msg = msg.Copy()
	delete(msg.Metadata, redisstream.UUIDHeaderKey)
	values, err := stock.Marshal(topic, msg)
	if err == nil {
		values[reservedField] = reserved
	}
	return values, err
}

// Unmarshal returns the message of an entry. One that cannot be read has what can be read of it, and is marked, so that
// it is set aside.
func (m Marshaler) Unmarshal(values map[string]any) (*message.Message, error) {
	var stock redisstream.Unmarshaller = redisstream.DefaultMarshallerUnmarshaller{}
	unmarshaler := m.Unmarshaler
	if unmarshaler == nil {
		unmarshaler = stock
	}
	msg, failed := read(unmarshaler, values)
	if failed != nil {
		var err error
		if msg, err = read(stock, values); err != nil {
			id, _ := values[redisstream.UUIDHeaderKey].(string)
			payload, _ := values["payload"].(string)
			msg = message.NewMessage(id, []byte(payload))
		}
	}
	if reserved, ok := values[reservedField].(string); ok {
		msg.Metadata.Set(redisstream.UUIDHeaderKey, reserved)
	}
	if failed != nil {
		poison.MarkUnreadable(msg, failed)
	}
	return msg, nil
}

// read returns a panic as an error: in the subscriber's goroutine it would end the process.
func read(unmarshaler redisstream.Unmarshaller, values map[string]any) (msg *message.Message, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("unmarshal: %v", p)
		}
	}()
	return unmarshaler.Unmarshal(values)
}

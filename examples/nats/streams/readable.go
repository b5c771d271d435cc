package streams

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	natsgo "github.com/nats-io/nats.go"

	"github.com/watermill-spillway/spillway/poison"
)

// readable never fails to unmarshal. What the marshaler cannot read becomes a message that poison.Queue dead-letters, with the
// bytes as its payload.
type readable struct{ nats.Unmarshaler }

func (r readable) Unmarshal(raw *natsgo.Msg) (*message.Message, error) {
	msg, err := r.Unmarshaler.Unmarshal(raw)
	if err == nil && msg != nil {
		return msg, nil
	}
	msg = message.NewMessage(idOf(raw), raw.Data)
	for key, values := range raw.Header {
		if len(values) > 0 && key != nats.WatermillUUIDHdr {
			msg.Metadata.Set(key, values[len(values)-1])
		}
	}
	poison.MarkUnreadable(msg, err)
	return msg, nil
}

// idOf is the same whenever the message is delivered: its own id, or else its place in the stream.
func idOf(raw *natsgo.Msg) string {
	if id := raw.Header.Get(nats.WatermillUUIDHdr); id != "" {
		return id
	}
	if place, err := raw.Metadata(); err == nil {
		return fmt.Sprintf("%s-%d", place.Stream, place.Sequence.Stream)
	}
	return watermill.NewUUID()
}

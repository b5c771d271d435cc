package idempotency

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
)

// prepare returns copies of the handler's outputs with the ids they are published and recorded under. They are copies
// because an output may be the source message, or one that the handler returns again and again. An output keeps the id
// that the handler set. One without an id, or with the id of an earlier output of the same message, gets a derived one:
// copies of the source have its id, and a consumer that recognises messages by their ids would take all but one for
// duplicates.
func (r *Receiver) prepare(s *scope, out []*message.Message) ([]*message.Message, error) {
	if len(out) == 0 {
		return nil, nil
	}
	prepared := make([]*message.Message, len(out))
	for i, m := range out {
		if m == nil {
			return nil, classify.Permanent(failed("record the outputs of", s.entry.Key,
				fmt.Errorf("output %d of %d is nil", i+1, len(out))))
		}
		id := m.UUID
		if id == "" || hasID(prepared[:i], id) {
			id = outputID(s.entry, i)
		}
		ctx := chain.CarryTransaction(s.leave(m.Context()), s.msg.Context())
		prepared[i] = message.NewMessageWithContext(ctx, id, m.Payload)
		maps.Copy(prepared[i].Metadata, m.Metadata)
	}
	return prepared, nil
}

func hasID(messages []*message.Message, id string) bool {
	return slices.ContainsFunc(messages, func(m *message.Message) bool { return m.UUID == id })
}

// namespace sets our ids apart from those that others derive from the same key.
var namespace = []byte("github.com/watermill-spillway/spillway/idempotency")

// outputID returns the id of the output at index, a UUID of version 8 (RFC 9562, 5.8). Each part is preceded by its
// length, so that no two keys run together to the same bytes.
func outputID(entry Entry, index int) string {
	b := make([]byte, 0, 128)
	b = append(b, namespace...)
	b = appendText(b, entry.Consumer)
	b = appendText(b, entry.ID)
	b = binary.AppendUvarint(b, uint64(index))
	if entry.Versioned { // the outputs of each version are others
		b = binary.AppendVarint(b, entry.Version)
	}
	sum := sha256.Sum256(b)
	u := sum[:16]
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// output is an output as it is recorded, in JSON. All is bytes, because ids and metadata may hold any.
type output struct {
	ID       []byte      `json:"id"`
	Metadata [][2][]byte `json:"metadata,omitempty"`
	Payload  []byte      `json:"payload"` // null stands for nil
}

var errRecord = errors.New("the record is damaged, or of a newer version")

// encodeOutputs returns nil for no messages.
func encodeOutputs(out []*message.Message) []byte {
	if len(out) == 0 {
		return nil
	}
	recorded := make([]output, len(out))
	for i, m := range out {
		recorded[i] = output{ID: []byte(m.UUID), Payload: m.Payload}
		for k, v := range m.Metadata {
			recorded[i].Metadata = append(recorded[i].Metadata, [2][]byte{[]byte(k), []byte(v)})
		}
	}
	b, _ := json.Marshal(recorded) // bytes never fail
	return b
}

// decodeOutputs is the inverse of encodeOutputs.
func decodeOutputs(b []byte) ([]*message.Message, error) {
	if len(b) == 0 {
		return nil, nil
	}
	var recorded []output
	if err := json.Unmarshal(b, &recorded); err != nil {
		return nil, fmt.Errorf("%w: %w", errRecord, err)
	}
	out := make([]*message.Message, len(recorded))
	for i, o := range recorded {
		out[i] = message.NewMessage(string(o.ID), o.Payload)
		for _, pair := range o.Metadata {
			out[i].Metadata[string(pair[0])] = string(pair[1])
		}
	}
	return out, nil
}

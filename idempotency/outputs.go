package idempotency

import (
	"crypto/sha256"
	"encoding/binary"
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

// Recorded outputs are binary, because ids and metadata may hold any bytes. After a version byte come, as uvarints and
// byte strings preceded by their lengths: the number of messages, and for each its id, the number of its metadata,
// their keys and values, and the payload. A payload's length is one more than it is, so that 0 stands for nil. Version
// 1 will always be readable: it stays in the table as long as its key.
const codecVersion = 1

var errRecord = errors.New("the record is damaged, or of a newer version")

// encodeOutputs returns nil for no messages.
func encodeOutputs(out []*message.Message) []byte {
	if len(out) == 0 {
		return nil
	}
	size := 1 + binary.MaxVarintLen64
	for _, m := range out {
		size += len(m.UUID) + len(m.Payload) + 64*(1+len(m.Metadata))
	}
	b := make([]byte, 0, size)
	b = append(b, codecVersion)
	b = binary.AppendUvarint(b, uint64(len(out)))
	for _, m := range out {
		b = appendText(b, m.UUID)
		b = binary.AppendUvarint(b, uint64(len(m.Metadata)))
		for k, v := range m.Metadata {
			b = appendText(appendText(b, k), v)
		}
		if m.Payload == nil {
			b = append(b, 0)
			continue
		}
		b = binary.AppendUvarint(b, uint64(len(m.Payload))+1)
		b = append(b, m.Payload...)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decodeOutputs is the inverse of encodeOutputs. Whatever the bytes are, it neither panics nor takes memory out of
// proportion to them.
func decodeOutputs(b []byte) ([]*message.Message, error) {
	if len(b) == 0 {
		return nil, nil
	}
	if b[0] != codecVersion {
		return nil, fmt.Errorf("version %d: %w", b[0], errRecord)
	}
	r := reader{rest: b[1:]}
	var out []*message.Message
	for n := r.number(); n > 0 && !r.failed; n-- {
		m := message.NewMessage(r.text(), nil)
		for k := r.number(); k > 0 && !r.failed; k-- {
			key := r.text()
			m.Metadata[key] = r.text()
		}
		if size := r.number(); size > 0 {
			m.Payload = append(message.Payload{}, r.take(size-1)...)
		}
		out = append(out, m)
	}
	if r.failed || len(r.rest) > 0 {
		return nil, errRecord
	}
	return out, nil
}

// reader takes values off the front of rest until that fails.
type reader struct {
	rest   []byte
	failed bool
}

func (r *reader) number() uint64 {
	v, n := binary.Uvarint(r.rest)
	if r.failed || n <= 0 {
		r.failed = true
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) take(size uint64) []byte {
	if r.failed || size > uint64(len(r.rest)) {
		r.failed = true
		return nil
	}
	taken := r.rest[:size]
	r.rest = r.rest[size:]
	return taken
}

func (r *reader) text() string { return string(r.take(r.number())) }

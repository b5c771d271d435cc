// Package metadatacodec writes messages into columns of bytes, and reads them. Metadata are one column: keys and values are whatever a message
// brought along, and no database has a text that holds any bytes.
package metadatacodec

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"maps"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"
)

const version = 1

// Metadata writes each key and value with its length in front. The order is that of the map.
func Metadata(metadata message.Metadata) []byte {
	size := 1
	for key, value := range metadata {
		size += len(key) + len(value) + 4
	}
	packed := append(make([]byte, 0, size), version)
	for key, value := range metadata {
		packed = Append(Append(packed, key), value)
	}
	return packed
}

// ErrDamaged is the error of what Metadata did not write.
var ErrDamaged = errors.New("the metadata column is damaged, or of another version")

// Read is the way back. No metadata is an empty one.
func Read(packed []byte) (message.Metadata, error) {
	if len(packed) == 0 || packed[0] != version {
		return nil, ErrDamaged
	}
	metadata := make(message.Metadata)
	for rest := packed[1:]; len(rest) > 0; {
		var key, value string
		var ok bool
		if key, rest, ok = cut(rest); !ok {
			return nil, ErrDamaged
		}
		if value, rest, ok = cut(rest); !ok {
			return nil, ErrDamaged
		}
		metadata[key] = value
	}
	return metadata, nil
}

// Append writes s with its length in front, so that it ends where it ended, whatever follows.
func Append(to []byte, s string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(s))), s...)
}

func cut(from []byte) (s string, rest []byte, ok bool) {
	n, width := binary.Uvarint(from)
	if width <= 0 || n > uint64(len(from)-width) {
		return "", nil, false
	}
	from = from[width:]
	return string(from[:n]), from[n:], true
}

// Payload is a payload as it is bound: a nil []byte is NULL to some drivers, and empty to others.
func Payload(payload message.Payload) any {
	if payload == nil {
		return nil
	}
	return []byte(payload)
}

// Message is the way back from the columns, with a context of its own. hasPayload says that the payload is not NULL: an
// empty one reads as nil in some drivers, and brokers tell empty from none.
func Message(id, metadata, payload []byte, hasPayload bool) (*message.Message, error) {
	decoded, err := Read(metadata)
	if err != nil {
		return nil, err
	}
	if hasPayload && payload == nil {
		payload = []byte{}
	}
	msg := message.NewMessageWithContext(context.Background(), string(id), payload)
	msg.Metadata = decoded
	return msg, nil
}

// Selector returns the hash that is on record for ids or metadata, so that the record of an erasure is found by those
// who know what was asked for. A value that can be guessed can be recognised by it.
func Selector(ids []string, metadata map[string]string) string {
	parts := Append(nil, "spillway erasure")
	for _, id := range slices.Sorted(slices.Values(ids)) {
		parts = Append(parts, id)
	}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		parts = Append(Append(parts, key), metadata[key])
	}
	sum := sha256.Sum256(parts)
	return "sha256:" + hex.EncodeToString(sum[:])
}

package poison

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/binary"
	"io"
	"maps"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"
)

const (
	maxPacked   = 32 << 10 // of base64: half of the room that Kafka's dead-letter topics have for a letter
	maxUnpacked = 1 << 20  // a broker's default limit for a whole message
)

// pack keeps the id and the metadata of the original that a transport with headers like those of HTTP would change or
// lose, in half of what is left of the budget. They also stay where they are, apart from orders to a NATS server.
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

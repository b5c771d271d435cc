package poison

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
)

// rawForm is a letter for a sink that refused the letter for what it carries.
type rawForm uint8

const (
	whole  rawForm = iota
	packed         // the producer's id and metadata are one base64 value
	bare           // without the producer's metadata
)

func (f rawForm) String() string { return [...]string{"whole", "packed", "bare"}[f] }

const (
	maxRaw      = 2 << 10  // what we add, apart from the packed metadata: less than any broker's limit
	maxPacked   = 32 << 10 // of base64: half of the room that Kafka's dead-letter topics have for a letter
	maxUnpacked = 1 << 20  // a broker's default limit for a whole message
	maxRawID    = 36       // a UUID's length, which every table has room for
)

// raw encodes the letter in a form that any sink takes: id and payload, and metadata of printable ASCII alone.
func (l Letter) raw(form rawForm, budget int) *message.Message {
	original := l.Original
	msg := message.NewMessageWithContext(original.Context(), rawID(original.UUID), original.Payload)
	w := writer{to: msg.Metadata, left: min(budget, maxRaw), ascii: true}
	if form == packed {
		msg.Metadata[KeyOriginalMetadata] = packMetadata(original.UUID, original.Metadata)
	} else {
		w.text(keyDropped, fmt.Sprintf("%d keys, %d bytes", len(original.Metadata), sizeOf(original.Metadata)), 64)
	}
	l.writeFirst(&w)
	l.writeRest(&w, shrunkLimits)
	return msg
}

// rawID returns id, or a name for it where a sink could refuse id: the true one is packed, and in x-original-message-id.
func rawID(id string) string {
	if len(id) <= maxRawID && isASCII(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

// isASCII reports whether s is printable ASCII.
func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

func toASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

func sizeOf(metadata message.Metadata) (size int) {
	for key, value := range metadata {
		size += len(key) + len(value)
	}
	return size
}

// packMetadata returns the id, keys and values as base64 of compressed fields, each with its length in front, or "" if that is
// longer than maxPacked.
func packMetadata(id string, metadata message.Metadata) string {
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
	if err := to.Close(); err != nil || base64.StdEncoding.EncodedLen(compressed.Len()) > maxPacked {
		return ""
	}
	return base64.StdEncoding.EncodeToString(compressed.Bytes())
}

// unpack restores the id and the metadata that raw packed. The value may be forged: what is not of this form changes nothing,
// and none of our keys comes out of it.
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

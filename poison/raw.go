package poison

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
)

// rawForm is a letter for a sink that refused the letter for what it carries.
type rawForm uint8

const (
	whole  rawForm = iota
	packed         // the producer's id and metadata are one base64 value, and nothing else
	bare           // without the producer's metadata
	plain          // the message as it came: no letter, since there is no room for one
)

func (f rawForm) String() string { return [...]string{"whole", "packed", "bare", "plain"}[f] }

const (
	maxRaw   = 2 << 10 // what we add, apart from the packed metadata: less than any broker's limit
	maxRawID = 36      // a UUID's length, which every table has room for
)

// raw encodes the letter in a form that any sink takes: id and payload, and metadata of printable ASCII alone.
func (l Letter) raw(form rawForm, budget int) *message.Message {
	original := l.Original
	msg := message.NewMessageWithContext(original.Context(), rawID(original.UUID), original.Payload)
	l.markSealed(msg)
	w := writer{to: msg.Metadata, left: min(budget, maxRaw), ascii: true}
	if form == packed {
		msg.Metadata[KeyOriginalMetadata] = packMetadata(original.UUID, original.Metadata, maxPacked)
	} else {
		w.text(keyDropped, fmt.Sprintf("%d keys, %d bytes", len(original.Metadata), sizeOf(original.Metadata)), 64)
	}
	l.writeFirst(&w)
	l.writeRest(&w, shrunkLimits)
	return msg
}

// plain returns the message as it came. All that is added is the count of redrives, which came with it. A letter that
// failed in its own consumer stays a letter.
func (l Letter) plain() *message.Message {
	if l.parked != nil {
		return l.parked.Copy()
	}
	msg := message.NewMessage(l.Original.UUID, l.Original.Payload)
	maps.Copy(msg.Metadata, l.Original.Metadata)
	l.markSealed(msg)
	w := writer{to: msg.Metadata, left: countLimits.total}
	w.count(KeyRedriveCount, l.Redrive.Count)
	return msg
}

// rawID returns id, or a name for it where a sink could refuse id: the true one is packed, and in
// x-original-message-id.
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

package wmsql

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
)

// KeyCarried is the metadata key under which a message in a table carries, as JSON, what the columns cannot hold. That
// is an id of more than 36 characters, which a hash replaces in its column, and ids and metadata that are not text. Of
// a dead letter whose values the database refuses it is everything that is not ASCII, and at last the payload. The
// Publisher writes the key, and the Subscriber restores the message. The name is reserved.
const KeyCarried = "x-sql-carried"

// maxID is the length of watermill-sql's column of ids, in characters.
const maxID = 36

// carried is what KeyCarried holds. JSON has bytes as base64.
type carried struct {
	ID       string      `json:"id,omitempty"`
	IDBytes  []byte      `json:"id-b64,omitempty"` // of an id that is no text
	Metadata [][2][]byte `json:"metadata-b64,omitempty"`
	Payload  *[]byte     `json:"payload-b64,omitempty"`
}

// form is how much of a message goes into the columns as it is.
type form int

const (
	plain    form = iota // what is text, in the columns; what is not, aside
	ascii                // what is not ASCII aside too: a column may have another character set
	metadata             // the payload aside too: the column may be JSON, and the payload is not
)

// carry returns the message as a row can hold it, or msg itself where that can.
func carry(msg *message.Message, as form) (*message.Message, error) {
	plainID := utf8.RuneCountInString(msg.UUID) <= maxID && as.keeps(msg.UUID)
	if plainID && as.keepsAll(msg.Metadata) && (as < metadata || msg.Payload == nil) {
		return msg, nil
	}
	row, aside := message.NewMessage(msg.UUID, msg.Payload), carried{}
	for key, value := range msg.Metadata {
		if as.keepsPair(key, value) {
			row.Metadata[key] = value
		} else {
			aside.Metadata = append(aside.Metadata, [2][]byte{[]byte(key), []byte(value)})
		}
	}
	if !plainID {
		row.UUID = standIn(msg.UUID)
		if isText(msg.UUID) {
			aside.ID = msg.UUID
		} else {
			aside.IDBytes = []byte(msg.UUID)
		}
	}
	if as == metadata && msg.Payload != nil {
		payload := []byte(msg.Payload)
		aside.Payload, row.Payload = &payload, []byte("{}")
	}
	encoded, err := json.Marshal(aside)
	row.Metadata[KeyCarried] = string(encoded)
	if as > plain {
		row.Metadata[KeyCarried] = escaped(encoded)
	}
	return row, err
}

// escaped is JSON in ASCII.
func escaped(text []byte) string {
	var to strings.Builder
	for _, r := range string(text) {
		switch {
		case r < utf8.RuneSelf:
			to.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&to, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&to, `\u%04x`, r)
		}
	}
	return to.String()
}

// standIn is the id in the column. The same id has the same one, so that other readers of the table can tell messages
// apart.
func standIn(id string) string {
	sum := sha256.Sum256([]byte(id))
	return "sha-" + hex.EncodeToString(sum[:16])
}

// restoreCarried undoes carry. An id is believed only if the column has its hash. Any other value is metadata like the
// rest.
func restoreCarried(msg *message.Message) {
	var aside carried
	encoded, ok := msg.Metadata[KeyCarried]
	if !ok || json.Unmarshal([]byte(encoded), &aside) != nil {
		return
	}
	id := aside.ID + string(aside.IDBytes)
	if id != "" && standIn(id) != msg.UUID || id == "" && len(aside.Metadata) == 0 && aside.Payload == nil {
		return
	}
	delete(msg.Metadata, KeyCarried)
	for _, pair := range aside.Metadata {
		msg.Metadata[string(pair[0])] = string(pair[1])
	}
	if aside.Payload != nil {
		msg.Payload = *aside.Payload
	}
	if id != "" {
		msg.UUID = id
	}
}

func (f form) keepsAll(metadata message.Metadata) bool {
	for key, value := range metadata {
		if !f.keepsPair(key, value) {
			return false
		}
	}
	return true
}

func (f form) keepsPair(key, value string) bool {
	return key != KeyCarried && f.keeps(key) && f.keeps(value)
}

func (f form) keeps(s string) bool { return isText(s) && (f == plain || isASCII(s)) }

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// isText reports whether both databases keep s as it is: PostgreSQL's text has no NUL.
func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

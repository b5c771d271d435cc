package wmsql

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
)

// KeyCarried is metadata in which a message on a table carries what the columns cannot hold, as JSON: an id of more than
// 36 characters, in whose place a hash of it stands, and ids and metadata that are no text. The Publisher writes it and
// the Subscriber puts everything back; the name is reserved.
const KeyCarried = "x-sql-carried"

// maxID is the length of watermill-sql's column of ids, in characters.
const maxID = 36

// carried is what KeyCarried holds. JSON has bytes as base64.
type carried struct {
	ID       string      `json:"id,omitempty"`
	IDBytes  []byte      `json:"id-b64,omitempty"` // of an id that is no text
	Metadata [][2][]byte `json:"metadata-b64,omitempty"`
}

// carry returns the message as a row can hold it, or msg itself where that can.
func carry(msg *message.Message) (*message.Message, error) {
	plainID := utf8.RuneCountInString(msg.UUID) <= maxID && isText(msg.UUID)
	if plainID && allPlain(msg.Metadata) {
		return msg, nil
	}
	row, aside := message.NewMessage(msg.UUID, msg.Payload), carried{}
	for key, value := range msg.Metadata {
		if isPlain(key, value) {
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
	encoded, err := json.Marshal(aside)
	row.Metadata[KeyCarried] = string(encoded)
	return row, err
}

// standIn is the id in the column: always the same for the same id, so that whoever reads the table without us can tell
// messages apart.
func standIn(id string) string {
	sum := sha256.Sum256([]byte(id))
	return "sha-" + hex.EncodeToString(sum[:16])
}

// restoreCarried undoes carry. An id is believed only where the column has its hash. What is not of the form is metadata
// like any other.
func restoreCarried(msg *message.Message) {
	var aside carried
	encoded, ok := msg.Metadata[KeyCarried]
	if !ok || json.Unmarshal([]byte(encoded), &aside) != nil {
		return
	}
	id := aside.ID + string(aside.IDBytes)
	if id != "" && standIn(id) != msg.UUID || id == "" && len(aside.Metadata) == 0 {
		return
	}
	delete(msg.Metadata, KeyCarried)
	for _, pair := range aside.Metadata {
		msg.Metadata[string(pair[0])] = string(pair[1])
	}
	if id != "" {
		msg.UUID = id
	}
}

func allPlain(metadata message.Metadata) bool {
	for key, value := range metadata {
		if !isPlain(key, value) {
			return false
		}
	}
	return true
}

func isPlain(key, value string) bool { return key != KeyCarried && isText(key) && isText(value) }

// isText tells whether both databases keep s as it is: PostgreSQL's text has no NUL.
func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// Package archive writes dead letters as JSON lines, and reads them again, without a loss: a letter that was exported
// and imported is the same letter, byte for byte, and the store recognises it.
//
//	{"spillway":1,"seq":7,"status":"waiting","seen":1,"stored_at":"…","dead_letter_topic":"orders.dlq",
//	 "id":"…","metadata":{"tenant":"blue","x-failure-class":"permanent",…},"payload":"{…}"}
//
// A payload, an id or a metadata value that is no text is base64 in payload_b64, id_b64 and metadata_b64, a list of
// pairs. A message without a payload has none; an empty payload is "". What a letter says of its failure is in the
// metadata, under the keys of the contract, at most 16 KiB.
package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// version is that of the format.
const version = 1

// Record is a letter on a line.
type Record struct {
	Spillway        int               `json:"spillway"`
	Seq             int64             `json:"seq"`
	Status          letters.Status    `json:"status"`
	Seen            int               `json:"seen"`
	StoredAt        time.Time         `json:"stored_at,omitzero"`
	DeadLetterTopic string            `json:"dead_letter_topic"`
	ID              string            `json:"id,omitempty"`
	IDBytes         []byte            `json:"id_b64,omitempty"`
	Metadata        map[string]string `json:"metadata,omitempty"`
	MetadataBytes   []pair            `json:"metadata_b64,omitempty"`
	Payload         *string           `json:"payload,omitempty"`
	PayloadBytes    []byte            `json:"payload_b64,omitempty"`
}

type pair struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// Of returns the record of a letter.
func Of(l letters.Letter) Record {
	msg := l.Encode()
	r := Record{Spillway: version, Seq: l.Seq, Status: l.Status, Seen: l.Seen, StoredAt: l.StoredAt.UTC(),
		DeadLetterTopic: l.DeadLetterTopic}
	if isText(msg.UUID) {
		r.ID = msg.UUID
	} else {
		r.IDBytes = []byte(msg.UUID)
	}
	for key, value := range msg.Metadata {
		if isText(key) && isText(value) {
			if r.Metadata == nil {
				r.Metadata = map[string]string{}
			}
			r.Metadata[key] = value
			continue
		}
		r.MetadataBytes = append(r.MetadataBytes, pair{[]byte(key), []byte(value)})
	}
	switch {
	case msg.Payload == nil:
	case isText(string(msg.Payload)):
		text := string(msg.Payload)
		r.Payload = &text
	default:
		r.PayloadBytes = msg.Payload
	}
	return r
}

// isText reports whether JSON keeps s as it is.
func isText(s string) bool { return utf8.ValidString(s) }

// Parse reads a record, or returns an error that says what is wrong with the line.
func Parse(line []byte) (Record, error) {
	decoder := json.NewDecoder(strings.NewReader(string(line)))
	decoder.DisallowUnknownFields()
	var r Record
	if err := decoder.Decode(&r); err != nil {
		return r, fmt.Errorf("the line is no record of redrive export: %w", err)
	}
	switch {
	case r.Spillway != version:
		return r, fmt.Errorf("spillway is %d, and this command reads version %d of the format", r.Spillway, version)
	case r.DeadLetterTopic == "":
		return r, errors.New("dead_letter_topic is empty: the line was not written by redrive export")
	case r.Payload != nil && r.PayloadBytes != nil, r.ID != "" && r.IDBytes != nil:
		return r, errors.New("a value is there twice, as text and as base64: leave one out")
	}
	return r, nil
}

// Message is the dead letter as a message for its dead-letter topic.
func (r Record) Message() *message.Message {
	id := r.ID
	if r.IDBytes != nil {
		id = string(r.IDBytes)
	}
	var payload []byte
	switch {
	case r.Payload != nil:
		payload = []byte(*r.Payload)
	case r.PayloadBytes != nil:
		payload = r.PayloadBytes
	}
	msg := message.NewMessage(id, payload)
	for key, value := range r.Metadata {
		msg.Metadata[key] = value
	}
	for _, p := range r.MetadataBytes {
		msg.Metadata[string(p.Key)] = string(p.Value)
	}
	return msg
}

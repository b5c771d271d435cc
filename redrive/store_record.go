package redrive

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/poison"
)

// record is a letter as it goes into a row.
type record struct {
	identity []byte
	topic    string
	msg      *message.Message
	metadata []byte
	letter   poison.Letter
}

func newRecord(topic string, msg *message.Message) record {
	r := record{topic: topic, msg: msg, metadata: encodeMetadata(msg.Metadata), letter: poison.Read(msg)}
	r.identity = identify(topic, r.letter)
	return r
}

// args are what insertLetter binds, with text as the database keeps it.
func (r *record) args(now time.Time, text func(string) any) []any {
	l := &r.letter
	last := lastFailed(*l, now)
	first := l.Failure.FirstFailedAt
	if first.IsZero() {
		first = last
	}
	var payload any // a nil []byte is NULL to some drivers, and empty to others
	if r.msg.Payload != nil {
		payload = []byte(r.msg.Payload)
	}
	return []any{
		r.identity, []byte(r.topic), []byte(r.msg.UUID), r.metadata, payload,
		[]byte(l.Origin.Topic), []byte(l.Origin.Handler), l.Failure.Class.String(), text(l.Failure.Reason), text(l.Failure.Type),
		text(l.Failure.StackHash), text(l.Failure.Description), first.UnixMicro(), last.UnixMicro(), now.UnixMicro(),
	}
}

// size is about what the letter's row takes.
func (r *record) size() int {
	return len(r.topic) + len(r.msg.UUID) + len(r.metadata) + len(r.msg.Payload) + len(r.letter.Origin.Topic) + len(r.letter.Origin.Handler) +
		len(r.letter.Failure.Reason) + len(r.letter.Failure.Type) + len(r.letter.Failure.StackHash) + len(r.letter.Failure.Description)
}

// identify is the same for the same letter arriving again and for no other: consumer, origin, id, redrive count, and
// the payload and the producer's metadata, because an id that is used twice must not lose a message. Without an id no
// letter is the same as another.
func identify(topic string, l poison.Letter) []byte {
	if l.Original.UUID == "" {
		unique := make([]byte, sha256.Size)
		_, _ = rand.Read(unique) // never fails
		return unique
	}
	origin := "origin:" + l.Origin.Topic
	if l.Origin.Topic == "" {
		origin = "dead:" + topic
	}
	payload := sha256.Sum256(l.Original.Payload)
	var parts []byte
	for _, part := range []string{
		origin, l.Origin.ConsumerGroup, l.Origin.Handler, l.Original.UUID, strconv.Itoa(l.Redrive.Count), string(payload[:]),
	} {
		parts = appendBytes(parts, part)
	}
	for _, key := range slices.Sorted(maps.Keys(l.Original.Metadata)) {
		parts = appendBytes(appendBytes(parts, key), l.Original.Metadata[key])
	}
	sum := sha256.Sum256(parts)
	return sum[:]
}

const metadataVersion = 1

// encodeMetadata writes each key and value with its length in front, so that any bytes survive.
func encodeMetadata(metadata message.Metadata) []byte {
	size := 1
	for key, value := range metadata {
		size += len(key) + len(value) + 4
	}
	encoded := append(make([]byte, 0, size), metadataVersion)
	for key, value := range metadata {
		encoded = appendBytes(appendBytes(encoded, key), value)
	}
	return encoded
}

var errMetadata = errors.New("the metadata column is damaged, or of another version")

func decodeMetadata(encoded []byte) (message.Metadata, error) {
	if len(encoded) == 0 || encoded[0] != metadataVersion {
		return nil, errMetadata
	}
	metadata := make(message.Metadata)
	for rest := encoded[1:]; len(rest) > 0; {
		var key, value string
		var ok bool
		if key, rest, ok = cutBytes(rest); !ok {
			return nil, errMetadata
		}
		if value, rest, ok = cutBytes(rest); !ok {
			return nil, errMetadata
		}
		metadata[key] = value
	}
	return metadata, nil
}

func appendBytes(to []byte, s string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(s))), s...)
}

func cutBytes(from []byte) (s string, rest []byte, ok bool) {
	n, width := binary.Uvarint(from)
	if width <= 0 || n > uint64(len(from)-width) {
		return "", nil, false
	}
	from = from[width:]
	return string(from[:n]), from[n:], true
}

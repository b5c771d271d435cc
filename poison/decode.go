package poison

import (
	"encoding/base64"
	"errors"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
)

// ErrNotLetter is returned by Decode for a message that carries no failure, neither ours nor that of another writer of
// dead letters.
var ErrNotLetter = errors.New("poison: not a dead letter: it has no x-failure-class metadata, and none of Watermill's PoisonQueue, Spring Kafka or Kafka Connect")

// Decode reads a dead letter, ours or one written by Watermill's PoisonQueue, Spring Kafka or Kafka Connect. The values
// are those of the message and nobody vouches for them: a count or time that cannot be one reads as absent, and texts are
// bounded. The letter shares the payload's bytes with msg, and nothing else; msg itself is not changed.
//
// The letters of others have no class that is known here. Of Spring Kafka, Failure.Type is its own wrapper and the
// listener's exception, and Attempts what its retry topics or the container's delivery attempt header count. Of Kafka
// Connect, Origin.Handler is the connector and Failure.Reason the stage that failed, in lower case; the class that failed
// and its task end the Description. Where a letter was set aside twice, Origin is the first place as far as it can be
// believed, and Failure the last failure. Our own keys count before those of others.
func Decode(msg *message.Message) (Letter, error) {
	if msg == nil || !IsLetter(msg) {
		return Letter{}, ErrNotLetter
	}
	return Read(msg), nil
}

// Read reads what the metadata of any message tells, as Decode does, and is for those who keep messages that may be no
// dead letter: such a one still tells its origin and its redrives, if it ever had them.
func Read(msg *message.Message) Letter {
	if msg == nil {
		return Letter{}
	}
	packed := msg.Metadata[KeyOriginalMetadata]
	l := decode(msg.CopyWithContext())
	l.unpack(packed)
	return l
}

// IsLetter tells whether msg carries the failure of a dead letter. So does a message in a retry stage, see RetryStageOf.
func IsLetter(msg *message.Message) bool {
	if msg == nil {
		return false
	}
	_, ok := msg.Metadata[KeyFailureClass]
	if !ok {
		_, ok = msg.Metadata[keyWatermillReason]
	}
	return ok || isForeign(msg.Metadata)
}

// decode reads what metadata tells, in whatever message, and takes it off. It owns msg.
func decode(msg *message.Message) Letter {
	added := writersOf(msg.Metadata)
	if added == 0 { // as good as every message, before its first failure
		return Letter{Original: msg}
	}
	r := reader(msg.Metadata)
	l := Letter{
		Original: msg,
		Origin: Origin{
			Topic:         r.identity(KeyOriginalTopic),
			Partition:     r.identity(KeyOriginalPartition),
			Offset:        r.identity(KeyOriginalOffset),
			Timestamp:     r.time(KeyOriginalTimestamp),
			MessageID:     r.identity(KeyOriginalMessageID),
			Handler:       r.identity(KeyOriginalHandler),
			ConsumerGroup: r.identity(KeyOriginalGroup),
			Exchange:      r.identity(KeyOriginalExchange),
			RoutingKey:    r.identity(KeyOriginalRoutingKey),
		},
		Failure: Failure{
			Reason:        r.text(KeyFailureReason),
			Description:   r.text(KeyFailureDescription),
			Type:          r.text(KeyFailureType),
			Stack:         r.text(KeyFailureStack),
			StackHash:     r.text(KeyFailureStackHash),
			Node:          r.text(KeyFailureNode),
			Attempts:      r.count(KeyAttempts),
			FirstFailedAt: r.time(KeyFirstFailedAt),
			LastFailedAt:  r.time(KeyLastFailedAt),
			History:       decodeHistory(r.text(KeyAttemptHistory)),
		},
		Redrive: Redrive{
			Count: r.count(KeyRedriveCount),
			At:    r.time(KeyRedrivenAt),
			By:    r.text(KeyRedrivenBy),
			ID:    r.text(KeyRedriveID),
		},
	}
	if key := r.identity(KeyOriginalKey); key != "" {
		l.Origin.Key = []byte(key)
	}
	l.Failure.Class, _ = classify.ParseClass(msg.Metadata[KeyFailureClass])
	if _, ok := msg.Metadata[KeyFailureClass]; !ok {
		l.readOthers(r, added)
	}
	msg.Metadata = ProducerMetadata(msg.Metadata)
	return l
}

// ProducerMetadata returns metadata without the keys of this package and of the others whose letters Decode reads: a copy, or
// metadata itself where there are none of them. What Spring Kafka and Kafka Connect add goes only where it makes a letter:
// a count of attempts alone, as of a message on its way through retry topics, is the producer's.
func ProducerMetadata(metadata message.Metadata) message.Metadata {
	added := writersOf(metadata)
	if added == 0 {
		return metadata
	}
	own := make(message.Metadata, len(metadata))
	for key, value := range metadata {
		if ours[key]&added == 0 {
			own[key] = value
		}
	}
	return own
}

// writersOf tells who added to metadata what is to be taken off again.
func writersOf(metadata message.Metadata) (added writers) {
	for key := range metadata {
		if w := ours[key]; w&byMark != 0 {
			added |= w &^ byMark
		}
	}
	return added
}

// readOthers reads a letter without our class. One of Spring Kafka and Kafka Connect both is read as Spring's.
func (l *Letter) readOthers(r reader, added writers) {
	if _, ok := r[keyWatermillReason]; ok {
		l.readWatermill(r)
	} else if added&bySpring != 0 {
		l.readSpring(r, repeatedHeaders(r))
	} else if added&byConnect != 0 {
		l.readConnect(r, repeatedHeaders(r))
	}
}

func (l *Letter) readWatermill(r reader) {
	l.Failure.Description = r.text(keyWatermillReason)
	if l.Origin.Topic == "" {
		l.Origin.Topic = r.identity(keyWatermillTopic)
	}
	if l.Origin.Handler == "" {
		l.Origin.Handler = r.identity(keyWatermillHandler)
	}
}

// reader gets values that anybody may have written.
type reader message.Metadata

func (r reader) identity(key string) string {
	value, ok := r[key]
	if !ok {
		encoded := r[key+Base64Suffix]
		if len(encoded) > base64.StdEncoding.EncodedLen(maxIdentity) { // before it is decoded: it may be the most that a broker takes
			return ""
		}
		raw, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return ""
		}
		value = string(raw)
	}
	if len(value) > maxIdentity {
		return ""
	}
	return value
}

func (r reader) text(key string) string { return boundedtext.Text(r[key], DefaultMaxAdded) }

func (r reader) count(key string) int { return boundedtext.Count(r[key]) }

func (r reader) time(key string) time.Time { return boundedtext.Time(r[key]) }

func decodeHistory(text string) []classify.Attempt {
	var history []classify.Attempt
	for line := range strings.Lines(text) {
		at, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		name, cause, _ := strings.Cut(rest, " ")
		class, known := classify.ParseClass(name)
		if when := boundedtext.Time(at); known && !when.IsZero() {
			history = classify.BoundHistory(append(history, classify.Attempt{At: when, Class: class, Error: boundedtext.Text(cause, 256)}))
		}
	}
	return history
}

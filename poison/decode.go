package poison

import (
	"cmp"
	"encoding/base64"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/deadletter"
)

// ErrNotLetter is returned by Decode for a message that carries no failure of Spillway or of another writer of dead
// letters.
var ErrNotLetter = errors.New("poison: not a dead letter: it has no x-failure-class metadata, and none of " +
	"Watermill's PoisonQueue, Spring Kafka, Kafka Connect, Kafka Streams, a Kafka share group or RabbitMQ")

// Decode reads a dead letter of Spillway, or of another writer: Watermill's PoisonQueue, Spring Kafka, Kafka Connect,
// Kafka Streams, a Kafka share group, or a dead-letter exchange of RabbitMQ. The values are those of the message and
// are not verified: an impossible count or time reads as absent, and texts are bounded. The letter shares the payload's
// bytes with msg. Decode does not change msg.
//
// Letters of other writers have no Failure.Class. Spillway's keys take precedence over those of other writers. The page
// docs/dead-letters.md says what each field is of which writer.
func Decode(msg *message.Message) (Letter, error) {
	if msg == nil || !isLetter(msg) && writersOfLetter(msg.Metadata)&byRabbit == 0 {
		return Letter{}, ErrNotLetter
	}
	return Read(msg), nil
}

// Read reads the metadata of any message as Decode does. It is for programs that keep messages which may be no dead
// letters. Such a message still has its origin and redrives, if it was redriven before.
func Read(msg *message.Message) Letter {
	if msg == nil {
		return Letter{}
	}
	packed := msg.Metadata[KeyOriginalMetadata]
	l := decode(msg.CopyWithContext(), writersOfLetter(msg.Metadata))
	l.unpack(packed)
	return *l
}

// isLetter reports whether msg carries the failure of a dead letter. A message in a retry stage carries one too.
func isLetter(msg *message.Message) bool {
	return msg != nil && (hasFailure(msg.Metadata) || isForeign(msg.Metadata))
}

// hasFailure reports whether metadata tell of a failure in Spillway or in Watermill's PoisonQueue.
func hasFailure(metadata message.Metadata) bool {
	_, ok := metadata[KeyFailureClass]
	if !ok {
		_, ok = metadata[keyWatermillReason]
	}
	return ok
}

// decode reads a letter from the metadata of msg and removes the keys of those writers. It owns msg.
func decode(msg *message.Message, added writers) *Letter {
	chain.Strip(msg.Metadata)
	l := &Letter{Original: msg}
	if added == 0 { // as good as every message, before its first failure
		return l
	}
	r := reader(msg.Metadata)
	l.first(r)
	l.rest(r, defaultLimits)
	var key string
	if r.identity(KeyOriginalKey, &key); key != "" {
		l.Origin.Key = []byte(key)
	}
	if !isIdentity(l.Redrive.Letter) {
		l.Redrive.Letter = ""
	}
	l.Failure.History = decodeHistory(r.bounded(KeyAttemptHistory))
	if class, ok := msg.Metadata[KeyFailureClass]; ok {
		_ = l.Failure.Class.UnmarshalText([]byte(class)) // leaves ClassUnknown
	} else {
		l.readOthers(r, added)
	}
	l.readSealed(r)
	msg.Metadata = without(msg.Metadata, added)
	return l
}

// without returns a copy of metadata without the keys of those writers. In a letter most keys are theirs.
func without(metadata message.Metadata, added writers) message.Metadata {
	own := make(message.Metadata)
	for key, value := range metadata {
		if ours[key]&added == 0 {
			own[key] = value
		}
	}
	return own
}

// writersOf returns the writers whose keys in metadata are to be removed.
func writersOf(metadata message.Metadata) (added writers) {
	for key := range metadata {
		if w := ours[key]; w&byMark != 0 {
			added |= w &^ byMark
		}
	}
	return added
}

// writersOfLetter is writersOf for a message that lies among dead letters. There x-death counts, if nothing else tells
// of a failure.
func writersOfLetter(metadata message.Metadata) writers {
	added := writersOf(metadata)
	if _, dead := metadata[keyDeaths]; !dead || isForeign(metadata) || hasFailure(metadata) ||
		len(deathsOf(metadata)) == 0 {
		return added
	}
	return added | byRabbit
}

// readOthers reads a letter without our class. One of several writers is read as that of the first of them here.
func (l *Letter) readOthers(r reader, added writers) {
	if _, ok := r[keyWatermillReason]; ok {
		l.readWatermill(r)
	} else if added&bySpring != 0 {
		l.readSpring(r)
	} else if added&byConnect != 0 {
		l.readConnect(r)
	} else if added&byStreams != 0 {
		l.readStreams(r)
	} else if added&byShare != 0 {
		l.readShare(r)
	} else if added&byRabbit != 0 {
		l.readDeaths(deathsOf(message.Metadata(r)))
	}
}

func (l *Letter) readWatermill(r reader) {
	l.Failure.Description = r.bounded(keyWatermillReason)
	l.Origin.Topic = cmp.Or(l.Origin.Topic, r.whole(keyWatermillTopic))
	l.Origin.Handler = cmp.Or(l.Origin.Handler, r.whole(keyWatermillHandler))
}

// reader reads values that any producer may have written.
type reader message.Metadata

func (r reader) identity(key string, value *string) {
	*value = r.whole(key)
	if _, ok := r[key]; ok {
		return
	}
	encoded := r[key+Base64Suffix]
	// before it is decoded: it may be the most that a broker takes
	if len(encoded) > base64.StdEncoding.EncodedLen(maxIdentity) {
		return
	}
	if raw, err := base64.StdEncoding.DecodeString(encoded); err == nil && len(raw) <= maxIdentity {
		*value = string(raw)
	}
}

// whole returns a value that is not too long to be an id, key or name.
func (r reader) whole(key string) string {
	if len(r[key]) > maxIdentity {
		return ""
	}
	return r[key]
}

func (r reader) bounded(key string) string { return boundedtext.Text(r[key], MaxAdded) }

// text reads what writer.text wrote.
func (r reader) text(key string, value *string, _ int) {
	*value = boundedtext.Text(fromLine(r.bounded(key)), MaxAdded)
}

func (r reader) count(key string, value *int) { *value = boundedtext.Count(r[key]) }

func (r reader) time(key string, value *time.Time) { *value = boundedtext.Time(r[key]) }

// MarkUnreadable marks msg as one that could not be read because of err. An adapter calls it where it unmarshals, and
// delivers the raw bytes as the payload. If it returned the error instead, its subscriber would stand still. A Queue
// dead-letters the message as invalid, with reason unmarshal_error, before any handler sees it. So every handler of
// such a subscriber needs a Queue. The mark has no effect in another process.
func MarkUnreadable(msg *message.Message, err error) { deadletter.MarkUnreadable(msg, err) }

// readable stands between the queue and what lies inside, so that no handler gets a message that could not be read.
func readable(next chain.Handler) chain.Handler {
	return func(c *chain.Call) ([]*message.Message, chain.Outcome) {
		if err := deadletter.Marked(c.Arrived(deadletter.KeyMarked)); err != nil {
			return nil, chain.Outcome{Next: chain.DeadLetter, Why: err}
		}
		return next(c)
	}
}

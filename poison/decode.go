package poison

import (
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
// docs/dead-letters.md says what each field is of which writer. Of a letter that was dead-lettered twice, Origin is the
// first place, if it can be trusted, and Failure is the last failure.
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
	l.readHistory()
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

// decode reads a letter from the metadata of msg and removes the keys of those writers. It owns msg, and leaves the
// history as it is written.
func decode(msg *message.Message, added writers) *Letter {
	chain.Strip(msg.Metadata)
	if added == 0 { // as good as every message, before its first failure
		return &Letter{Original: msg}
	}
	r := reader(msg.Metadata)
	l := &Letter{
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
			Reason:        r.line(KeyFailureReason),
			Description:   r.line(KeyFailureDescription),
			Type:          r.line(KeyFailureType),
			Stack:         r.line(KeyFailureStack),
			StackHash:     r.line(KeyFailureStackHash),
			Node:          r.line(KeyFailureNode),
			Attempts:      r.count(KeyAttempts),
			FirstFailedAt: r.time(KeyFirstFailedAt),
			LastFailedAt:  r.time(KeyLastFailedAt),
		},
		Redrive: Redrive{
			Count: r.count(KeyRedriveCount),
			At:    r.time(KeyRedrivenAt),
			By:    r.line(KeyRedrivenBy),
			ID:    r.line(KeyRedriveID),

			Letter: identityOrNone(r[KeyRedrivenLetter]),
		},
		Trace:   r.identity(KeyEarlierTrace),
		history: r.text(KeyAttemptHistory),
	}
	if key := r.identity(KeyOriginalKey); key != "" {
		l.Origin.Key = []byte(key)
	}
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
		l.readSpring(r, repeatedHeaders(r))
	} else if added&byConnect != 0 {
		l.readConnect(r, repeatedHeaders(r))
	} else if added&byStreams != 0 {
		l.readStreams(r, repeatedHeaders(r))
	} else if added&byShare != 0 {
		l.readShare(r, repeatedHeaders(r))
	} else if added&byRabbit != 0 {
		l.readDeaths(deathsOf(message.Metadata(r)))
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

// reader reads values that any producer may have written.
type reader message.Metadata

func (r reader) identity(key string) string {
	value, ok := r[key]
	if !ok {
		encoded := r[key+Base64Suffix]
		// before it is decoded: it may be the most that a broker takes
		if len(encoded) > base64.StdEncoding.EncodedLen(maxIdentity) {
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

func (r reader) text(key string) string { return boundedtext.Text(r[key], MaxAdded) }

// line reads a text that was written by writer.text.
func (r reader) line(key string) string {
	return boundedtext.Text(fromLine(r.text(key)), MaxAdded)
}

func (r reader) count(key string) int { return boundedtext.Count(r[key]) }

func (r reader) time(key string) time.Time { return boundedtext.Time(r[key]) }

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

package letters

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
	"github.com/watermill-spillway/spillway/poison"
)

// cause is what failed, where and how: what the letters of one Group have in common.
type cause struct {
	deadLetterTopic, topic, handler string
	class, reason, typ, stackHash   string
	description                     string
}

func causeOf(deadLetterTopic string, l *poison.Letter) cause {
	return cause{
		deadLetterTopic, l.Origin.Topic, l.Origin.Handler,
		l.Failure.Class.String(), l.Failure.Reason, l.Failure.Type, l.Failure.StackHash, l.Failure.Description,
	}
}

// hash is the same for the same cause in every process. The table keeps it.
func (c cause) hash() string {
	var parts []byte
	for _, part := range []string{c.deadLetterTopic, c.topic, c.handler, c.class, c.reason, c.typ, c.stackHash,
		folded(c.description)} {
		parts = metadatacodec.Append(parts, part)
	}
	sum := sha256.Sum256(parts)
	return hex.EncodeToString(sum[:16])
}

// classOf is the class by its name, or ClassUnknown.
func classOf(name string) classify.Class {
	var class classify.Class
	_ = class.UnmarshalText([]byte(name)) // leaves ClassUnknown
	return class
}

// CauseOf returns the hash of the cause of a letter that is not in a Store, such as one that the hook OnDeadLetter of a
// poison.Queue is called with. It is the Group.Cause under which a Store keeps that letter. The exception is a letter
// that its publisher took only after the queue had cut it: what was cut does not count for the Store.
func CauseOf(l poison.Letter) string {
	bare := poison.Letter{
		Origin: poison.Origin{Topic: l.Origin.Topic, Handler: l.Origin.Handler},
		Failure: poison.Failure{Class: l.Failure.Class, Reason: l.Failure.Reason, Type: l.Failure.Type,
			StackHash: l.Failure.StackHash, Description: l.Failure.Description},
	}
	placed := poison.Read(bare.Encode()) // as the letter travels: texts are bounded
	return causeOf(l.DeadLetterTopic, &placed).hash()
}

package letters

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/metadatacodec"
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
	for _, part := range []string{c.deadLetterTopic, c.topic, c.handler, c.class, c.reason, c.typ, c.stackHash, folded(c.description)} {
		parts = metadatacodec.Append(parts, part)
	}
	sum := sha256.Sum256(parts)
	return hex.EncodeToString(sum[:16])
}

// classOf is the class by its name, or ClassUnknown.
func classOf(name string) classify.Class {
	class, _ := classify.ParseClass(name)
	return class
}

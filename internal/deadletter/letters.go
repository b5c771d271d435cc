package deadletter

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/seal"
)

// Letters is package poison as the other parts see it: poison.Inside returns it.
type Letters interface {
	// IsLetter reports whether msg carries the failure of a dead letter. A message in a retry stage carries one too:
	// see StageOf.
	IsLetter(msg *message.Message) bool
	// ProducerMetadata returns metadata without the keys of package poison and of the other writers whose letters it
	// reads. It returns a copy, or metadata itself if it has none of these keys. Headers of other
	// writers are removed only from a letter: a count of attempts alone, as in a message on its way through retry
	// topics, stays, and so does RabbitMQ's x-death.
	ProducerMetadata(metadata message.Metadata) message.Metadata
	// StageOf reads which retry stage msg waits in, or came from. The values are those of the message and are not
	// verified.
	StageOf(msg *message.Message) Stage
	// Seal returns a copy of a dead letter with its payload and its producer's metadata sealed with the current key.
	// All that poison.Read reads stays readable. changed reports whether it is a copy: a letter that the current key
	// sealed already is returned as it is.
	Seal(ctx context.Context, s *seal.Sealer, msg *message.Message) (_ *message.Message, changed bool, err error)
}

// Stage says in which retry stage a message waits, and until when. A value that is absent or impossible is zero.
type Stage struct {
	// Number counts stages from 1. It is 0 for a message that waited in none.
	Number int
	// DueAt is when the message is handled again, by the clock of the process that sent it there.
	DueAt time.Time
	// HoldUntil is when the message goes to the end of its stage, where no consumer can hold it until it is due.
	HoldUntil time.Time
}

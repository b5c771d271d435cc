package poison

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
)

// RetryStage says in which retry stage a message waits, and until when. A value that is absent or impossible is zero.
type RetryStage struct {
	// Number counts stages from 1. It is 0 for a message that waited in none.
	Number int
	// DueAt is when the message is handled again, by the clock of the process that sent it there.
	DueAt time.Time
	// HoldUntil is when the message goes to the end of its stage, where no consumer can hold it until it is due.
	HoldUntil time.Time
}

// RetryStageOf reads which retry stage msg waits in, or came from. The values are those of the message and are not
// verified.
func RetryStageOf(msg *message.Message) RetryStage {
	if msg == nil {
		return RetryStage{}
	}
	return RetryStage{
		Number:    boundedtext.Count(msg.Metadata[KeyRetryStage]),
		DueAt:     boundedtext.Time(msg.Metadata[KeyRetryDueAt]),
		HoldUntil: boundedtext.Time(msg.Metadata[KeyRetryHoldUntil]),
	}
}

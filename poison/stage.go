package poison

import (
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/deadletter"
)

// stageOf is deadletter.Letters.StageOf.
func stageOf(msg *message.Message) deadletter.Stage {
	if msg == nil {
		return deadletter.Stage{}
	}
	return deadletter.Stage{
		Number:    boundedtext.Count(msg.Metadata[KeyRetryStage]),
		DueAt:     boundedtext.Time(msg.Metadata[KeyRetryDueAt]),
		HoldUntil: boundedtext.Time(msg.Metadata[KeyRetryHoldUntil]),
	}
}

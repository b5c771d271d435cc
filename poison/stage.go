package poison

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
)

// Stage says in which retry stage a message waits, and until when. What is absent, or cannot be one, is zero.
type Stage struct {
	// Number counts stages from 1.
	Number int
	// DueAt is when the message is handled again, by the clock of who sent it there.
	DueAt time.Time
	// HoldUntil is when the message goes to the end of its stage, where nobody can hold it until it is due.
	HoldUntil time.Time
}

// StageOf reads which stage msg waits in. The values are those of the message and nobody vouches for them.
func StageOf(msg *message.Message) Stage {
	if msg == nil {
		return Stage{}
	}
	return Stage{
		Number:    boundedtext.Count(msg.Metadata[KeyRetryStage]),
		DueAt:     boundedtext.Time(msg.Metadata[KeyRetryDueAt]),
		HoldUntil: boundedtext.Time(msg.Metadata[KeyRetryHoldUntil]),
	}
}

// ForStage returns the message that is published to a retry stage in place of original, a message as it arrived: with its
// origin and its failure so far, earlier stages included, and without the stack. It is published on behalf of original: its
// context has the values of original's context, and does not end with it. It takes over original. It is for package middleware.
func (q *Queue) ForStage(original *message.Message, failure *classify.Failure, stage Stage) *message.Message {
	ctx := original.Context()
	source := Source{Topic: message.SubscribeTopicFromCtx(ctx), Handler: message.HandlerNameFromCtx(ctx), Class: failure.Verdict.Class}
	l := q.letter(original, failure, source, false)
	l.stage = stage
	l.Failure.Reason = failure.Verdict.Reason // what reads as exhausted by default is not yet
	msg := l.encode(limits{total: q.limits.total, description: 256, history: q.limits.history})
	msg.SetContext(chain.Returning(context.WithoutCancel(ctx)))
	return msg
}

package poison

import (
	"context"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/traced"
	"github.com/watermill-spillway/spillway/observe"
)

func (q *Queue) traced() traced.By {
	return traced.By{Tracer: q.config.Tracer, Logger: q.config.Logger}
}

// operation is one publishing of a letter.
func (q *Queue) operation(ctx context.Context, sink Sink, l Letter, number int) observe.Operation {
	if q.config.Tracer == nil {
		return observe.Operation{}
	}
	earlier := l.Trace // of what brought the message here
	l.DeadLetterTopic = sink.Topic
	return observe.Operation{
		Kind: observe.DeadLetter, Topic: l.Origin.Topic, Handler: l.Origin.Handler, To: sink.Topic, Client: sink.Publisher,
		ID: l.Original.UUID, Message: l.Original, Number: number, Redrives: l.Redrive.Count, Attempts: l.Failure.Attempts,
		Verdict: classify.Verdict{Class: l.Failure.Class, Reason: l.Failure.Reason}, Letter: l, Parent: chain.TraceOf(ctx),
		Earlier: earlier,
	}
}

// shown returns the text of a refusal as it may be shown.
func (q *Queue) shown(err error) string { return q.causeOf(err).Error() }

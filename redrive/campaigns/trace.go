package campaigns

import (
	"context"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain/traced"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
)

func (f *flight) traced() traced.By {
	return traced.By{Tracer: f.all.config.Tracer, Logger: f.all.config.Logger}
}

// operation is one publishing of a letter.
func (f *flight) operation(ctx context.Context, l poison.Letter, topic string, number int) observe.Operation {
	if f.all.config.Tracer == nil {
		return observe.Operation{}
	}
	return observe.Operation{
		Kind: observe.Redrive, Topic: l.Origin.Topic, Handler: l.Origin.Handler, To: topic, Client: f.publisher,
		ID: l.Original.UUID, Message: l.Original, Number: number, Redrives: l.Redrive.Count + 1, Attempts: l.Failure.Attempts,
		Verdict: classify.Verdict{Class: l.Failure.Class, Reason: l.Failure.Reason}, Letter: l, Parent: f.traced().Trace(ctx),
		Earlier: l.Trace,
	}
}

package redrive

import (
	"context"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain/traced"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/privacy"
)

func (r *rules) traced() traced.By { return traced.By{Tracer: r.Hooks.Tracer, Logger: r.Logger} }

// operation is one publishing of a letter, or of a message of a dead-letter topic.
func (r *rules) operation(ctx context.Context, kind observe.Kind, client any, l poison.Letter, topic string,
	number int) observe.Operation {
	if r.Hooks.Tracer == nil {
		return observe.Operation{}
	}
	op := operationOn(kind, l)
	op.To, op.Client, op.Number, op.Parent = topic, client, number, r.traced().Trace(ctx)
	return op
}

// settlement calls mark, which ends what trace began, as an operation.
func (r *rules) settlement(l poison.Letter, client any, outcome, trace string, mark func(context.Context) error) error {
	if r.Hooks.Tracer == nil {
		return mark(context.Background())
	}
	op := operationOn(observe.Settle, l)
	op.To, op.Client, op.Outcome, op.Parent = l.DeadLetterTopic, client, outcome, trace
	return r.traced().PublishMasked(context.Background(), op, shown, func(in context.Context, _ string) error {
		return mark(in)
	})
}

// shown returns the text of a refusal without credentials.
func shown(err error) string { return (*privacy.Redactor)(nil).Text(boundedtext.Error(err, maxShown)) }

// maxShown bounds the text of an error that is masked.
const maxShown = 4 << 10

func operationOn(kind observe.Kind, l poison.Letter) observe.Operation {
	op := observe.Operation{
		Kind: kind, Topic: l.Origin.Topic, Handler: l.Origin.Handler, ID: l.Original.UUID, Message: l.Original,
		Redrives: l.Redrive.Count, Attempts: l.Failure.Attempts,
		Verdict: classify.Verdict{Class: l.Failure.Class, Reason: l.Failure.Reason}, Letter: l, Earlier: l.Trace,
	}
	if kind == observe.Redrive {
		op.Redrives++
	}
	return op
}

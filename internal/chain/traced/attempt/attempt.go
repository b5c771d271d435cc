// Package attempt calls an observe.Tracer around each attempt of a handler. Its part belongs inside of Retry and of the
// breaker, so that no operation is open while a message waits, and outside of the idempotent receiver.
package attempt

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/traced"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
)

// trace calls an observe.Tracer around each attempt of a handler.
type trace struct {
	chain.Link
	shared observe.Shared
	by     traced.By
}

// Part returns the part that calls the Tracer of shared, which is not nil. While the handler runs, the message has the
// context that the Tracer returned. After that it has the context from before. The Classifier judges the errors, and
// Privacy masks their texts before the Tracer gets them.
func Part(shared observe.Shared) chain.Part {
	t := &trace{shared: shared, by: traced.By{Tracer: shared.Tracer,
		Logger: logging.Wrap(shared.Logger, shared.Privacy.Text)}}
	t.Link = chain.LinkOf(t.step)
	return t
}

func (t *trace) step(next chain.Handler) chain.Handler {
	return func(c *chain.Call) (out []*message.Message, o chain.Outcome) {
		before := c.Msg.Context()
		op := observe.Operation{
			Kind: observe.Attempt, Topic: message.SubscribeTopicFromCtx(c.Ctx),
			Handler: message.HandlerNameFromCtx(c.Ctx),
			ID:      c.ID(), Message: c.Msg, Number: c.Attempts, Earlier: c.Trace,
			Redrives: boundedtext.Count(c.Arrived(poison.KeyRedriveCount)),
		}
		if op.Earlier == "" {
			op.Earlier = c.Arrived(poison.KeyEarlierTrace)
		}
		if c.Reentry != nil {
			op.Stage = c.Reentry.Stage
		}
		in, began := t.by.Begin(before, &op)
		if !began {
			return next(c)
		}
		c.Msg.SetContext(in)
		o = chain.Outcome{Next: chain.Failed, Why: errInterrupted}
		defer func() { t.end(c, before, in, &op, o) }()
		out, o = next(c)
		return out, o
	}
}

// errInterrupted is the error of a handler that did not return.
var errInterrupted = classify.Permanent(errors.New("the handler panicked, or called runtime.Goexit"),
	classify.Reason(classify.ReasonGoexit))

// end ends the attempt. A message that was nacked may be on its way again already, and keeps its context.
func (t *trace) end(c *chain.Call, before, in context.Context, op *observe.Operation, o chain.Outcome) {
	if !c.Nacked() {
		c.Msg.SetContext(before)
	}
	if o.Next == chain.Done {
		t.by.End(in, op, observe.Ending{})
		return
	}
	c.Trace = t.by.Trace(in)
	verdict := t.shared.Classifier.Classify(o.Why)
	if c.Left(o) {
		verdict = classify.Verdict{Class: classify.ClassAborted}
	}
	verdict.Reason, verdict.Description = t.shared.Privacy.Text(verdict.Reason), t.shared.Privacy.Text(verdict.Description)
	t.by.End(in, op, observe.Ending{Err: o.Why, Verdict: verdict, Text: t.text(o.Why)})
}

// text returns the text of err for the Tracer: bounded and masked.
func (t *trace) text(err error) string {
	return logging.CauseOf(err, t.shared.Privacy.Text).Error()
}

package middleware

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/safecall"
	"github.com/watermill-spillway/spillway/internal/traced"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/settings"
)

// TraceConfig configures a Trace. Tracer is required.
type TraceConfig struct {
	// Shared: Tracer is called around each attempt. Tracer is required. Classifier judges the errors, and Privacy masks their
	// texts before the Tracer gets them. Logger receives the panics of the Tracer.
	settings.Shared
}

// Trace calls an observe.Tracer around each attempt of a handler. It belongs inside of Retry and of the breaker,
// so that no operation is open while a message waits, and outside of the idempotent receiver.
type Trace struct {
	link
	config TraceConfig
	by     traced.By
}

// NewTrace returns a Trace, or an error that says what is missing.
func NewTrace(config TraceConfig) (*Trace, error) {
	if safecall.IsNil(config.Tracer) {
		return nil, errors.New("middleware: TraceConfig.Tracer is nil: give one, such as that of package telemetry, or " +
			"leave Trace out")
	}
	if config.Logger == nil {
		config.Logger = watermill.NopLogger{}
	}
	t := &Trace{config: config, by: traced.By{Tracer: config.Tracer, Logger: config.Logger}}
	t.link = chain.LinkOf(t.step)
	return t, nil
}

// Middleware calls the Tracer around h. While h runs, the message has the context that the Tracer returned. After that
// it has the context from before.
func (t *Trace) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return chain.Enter(t.step)(h)
}

func (t *Trace) step(next chain.Handler) chain.Handler {
	return func(c *chain.Call) (out []*message.Message, o chain.Outcome) {
		before := c.Msg.Context()
		op := observe.Operation{
			Kind: observe.Attempt, Topic: message.SubscribeTopicFromCtx(c.Ctx), Handler: message.HandlerNameFromCtx(c.Ctx),
			ID: c.ID(), Message: c.Msg, Number: c.Attempts, Earlier: c.Trace,
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
func (t *Trace) end(c *chain.Call, before, in context.Context, op *observe.Operation, o chain.Outcome) {
	if !c.Nacked() {
		c.Msg.SetContext(before)
	}
	if o.Next == chain.Done {
		t.by.End(in, op, observe.Ending{})
		return
	}
	c.Trace = t.by.Trace(in)
	verdict := t.config.Classifier.Classify(o.Why)
	if c.Left(o) {
		verdict = classify.Verdict{Class: classify.ClassAborted}
	}
	verdict.Reason, verdict.Description = t.config.Privacy.Text(verdict.Reason), t.config.Privacy.Text(verdict.Description)
	t.by.End(in, op, observe.Ending{Err: o.Why, Verdict: verdict, Text: t.text(o.Why)})
}

// text returns the text of err for the Tracer: bounded and masked.
func (t *Trace) text(err error) string {
	return logging.Cause(t.config.Privacy.Text(boundedtext.Error(err, maxMasked))).Error()
}

package stages

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/traced"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
)

// traced publishes msg, which goes to a stage in place of the message of c, as an operation of the Tracer.
func (s *Stages) traced(c *chain.Call, to *stageTopic, failure *classify.Failure, number int, client any,
	msg *message.Message, publish func() error) error {
	if s.config.Tracer == nil {
		return publish()
	}
	op := observe.Operation{
		Kind: observe.Stage, Topic: message.SubscribeTopicFromCtx(c.Ctx), Handler: message.HandlerNameFromCtx(c.Ctx),
		To: to.topic, Client: client, ID: c.ID(), Message: c.Msg, Stage: number, Attempts: failure.Attempts,
		Verdict: s.inside.Shown(failure.Verdict), Redrives: poison.Read(msg).Redrive.Count, Parent: c.Trace,
		Earlier: c.Arrived(poison.KeyEarlierTrace),
	}
	by := traced.By{Tracer: s.config.Tracer, Logger: s.config.Logger}
	return by.PublishMasked(msg.Context(), op, func(err error) string {
		return s.inside.Cause(err).Error()
	}, func(in context.Context, trace string) error {
		msg.SetContext(in)
		if trace != "" && len(trace) <= maxTrace {
			msg.Metadata.Set(poison.KeyEarlierTrace, trace)
		}
		return publish()
	})
}

// maxTrace bounds what a Tracer adds to a message.
const maxTrace = 1 << 10

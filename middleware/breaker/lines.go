package breaker

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/logging"
)

var errAlone = errors.New("no other message failed with it")

func (p *call) logAlone(err error) {
	logging.BreakerHeldByOne.Write(p.breaker.config.Logger, p.breaker.cause(fmt.Errorf("%w: %w", errAlone, err)),
		logging.Fields{
			logging.Topic: message.SubscribeTopicFromCtx(p.c.Ctx), logging.Handler: message.HandlerNameFromCtx(p.c.Ctx),
			logging.MessageID: p.c.ID(),
		})
}

// logGaveUp says once that errors of a kind hold no more messages.
func (p *call) logGaveUp(err error, verdict classify.Verdict) {
	fields := logging.Fields{
		logging.Handler: message.HandlerNameFromCtx(p.c.Ctx), logging.Class: verdict.Class.String(), "kind": p.gaveUp,
	}
	if p.scope != "" {
		fields["scope"] = p.scope
	}
	p.gaveUp = ""
	logging.BreakerGaveUp.Write(p.breaker.config.Logger, p.breaker.cause(err), fields)
}

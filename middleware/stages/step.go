package stages

import (
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/attempts"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/outage"
)

// Middleware sends a message that failed in h to its next stage, if h is a handler that was added to these Stages.
// Other errors it returns as they are. It belongs inside poison.Queue and outside of Retry, whose RetryConfig.Attempts
// says how often h is called at once, while the message is held.
func (s *Stages) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return chain.Enter(s.step)(h)
}

func init() {
	chain.Register((*Stages).step)
	outage.Watch(func(s *Stages) *outage.Dependency { return s.sink })
}

func (s *Stages) step(next chain.Handler) chain.Handler {
	return func(c *chain.Call) ([]*message.Message, error) {
		if !s.passed.Load() {
			s.passed.Store(true)
		}
		if c.Reentry != nil {
			c.Reentry.Met = true
			if c.Reentry.Foreign {
				return nil, errForeign
			}
		}
		c.Staged, c.Later = s.has, s.hasNext
		out, err := next(c)
		if err != nil {
			return nil, s.later(c, err)
		}
		return out, nil
	}
}

var errForeign = classify.Permanent(errors.New("stages: the message waits for another handler: two handlers share " +
	"this stage topic without SharedTopics; name stage topics after the handler too, with {handler} in Naming.Stage, or " +
	"set Config.SharedTopics"))

// handlerOf returns the handler of the call, or nil if it has no stages here.
func (s *Stages) handlerOf(c *chain.Call) *handler {
	s.mu.RLock()
	defer s.mu.RUnlock()
	h := s.handlers[message.HandlerNameFromCtx(c.Ctx)]
	if h == nil || h.topic != message.SubscribeTopicFromCtx(c.Ctx) { // a handler of the same name in another router
		return nil
	}
	return h
}

// stageOf returns the number of the stage that the message comes from, or 0.
func stageOf(c *chain.Call) int {
	if c.Reentry == nil {
		return 0
	}
	return c.Reentry.Stage
}

// later returns nil if the message waits for its next attempt now. Otherwise it returns the error for the parts further
// out.
func (s *Stages) later(c *chain.Call, err error) error {
	if c.Nacked() || c.Claimed() || c.Aborted() {
		return err
	}
	h := s.handlerOf(c)
	if h == nil {
		return err
	}
	failure := attempts.Of(s.config.Classifier, err)
	if !attempts.CanSucceed(failure.Verdict.Class) {
		return failure
	}
	number, pause, ok := s.next(stageOf(c), failure.Verdict.RetryAfter)
	if !ok {
		if asked := failure.Verdict.RetryAfter; asked > s.config.MaxDelay {
			logging.WaitTooLong.Write(s.config.Logger, nil,
				logging.Fields{logging.Topic: h.topic, logging.Handler: h.name, logging.MessageID: c.Msg.UUID, "retry_after": asked,
					"max_delay": s.config.MaxDelay})
		}
		return failure
	}
	c.Restore()
	return s.send(c, h, failure, number, pause)
}

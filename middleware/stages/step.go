package stages

import (
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/attempts"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/logging"
)

// Middleware sends a message that failed in h to its next stage, if h is a handler that was added to these Stages.
// Other errors it returns as they are. It belongs inside poison.Queue and outside of Retry, whose RetryConfig.Attempts
// says how often h is called at once, while the message is held.
func (s *Stages) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return chain.Enter(s.step)(h)
}

func (s *Stages) step(next chain.Handler) chain.Handler {
	return func(c *chain.Call) ([]*message.Message, chain.Outcome) {
		if !s.passed.Load() {
			s.passed.Store(true)
		}
		if c.Reentry != nil {
			c.Reentry.Met = true
			if c.Reentry.Foreign {
				return nil, chain.Outcome{Next: chain.DeadLetter, Why: errForeign}
			}
		}
		c.EnterStages(staging{s})
		out, o := next(c)
		if o.Next == chain.Failed || o.Next == chain.Stage {
			return nil, s.later(c, o)
		}
		return out, o
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

// staging is what the parts further in ask the stages.
type staging struct{ stages *Stages }

func (s staging) Has(c *chain.Call) bool { return s.stages.handlerOf(c) != nil }

func (s staging) HasNext(c *chain.Call, v classify.Verdict) bool {
	if !attempts.CanSucceed(v.Class) || !s.Has(c) {
		return false
	}
	_, _, ok := s.stages.next(stageOf(c), v.RetryAfter)
	return ok
}

// later sends the message to its next stage, where it waits for its next attempt. If it has none, the parts further out
// decide.
func (s *Stages) later(c *chain.Call, o chain.Outcome) chain.Outcome {
	if c.Nacked() || c.Claimed() || c.Left(o) {
		return o
	}
	h := s.handlerOf(c)
	if h == nil {
		return o
	}
	failure := attempts.Of(s.config.Classifier, o.Why)
	if !attempts.CanSucceed(failure.Verdict.Class) {
		return chain.Outcome{Next: chain.DeadLetter, Why: failure}
	}
	number, pause, ok := s.next(stageOf(c), failure.Verdict.RetryAfter)
	if !ok {
		if asked := failure.Verdict.RetryAfter; asked > s.config.longest() {
			logging.WaitTooLong.Write(s.config.Logger, nil,
				logging.Fields{logging.Topic: h.topic, logging.Handler: h.name, logging.MessageID: c.Msg.UUID, "retry_after": asked,
					"max_delay": s.config.longest()})
		}
		return chain.Outcome{Next: chain.DeadLetter, Why: failure}
	}
	c.Restore()
	return s.send(c, h, failure, number, pause)
}

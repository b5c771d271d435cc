package stages

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/attempts"
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
		}
		c.EnterStages(staging{s})
		out, o := next(c)
		if o.Next == chain.Failed || o.Next == chain.Stage {
			return nil, s.later(c, o)
		}
		return out, o
	}
}

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
			eventWaitTooLong.Write(s.config.Logger, nil,
				logging.Fields{logging.Topic: h.topic, logging.Handler: h.name, logging.MessageID: c.Msg.UUID,
					"retry_after": asked,
					"max_delay":   s.config.longest()})
		}
		return chain.Outcome{Next: chain.DeadLetter, Why: failure}
	}
	c.Restore()
	return s.send(c, h, failure, number, pause)
}

// claim makes msg the one copy of its message that is held here, and reports whether it is. If another copy is held,
// claim waits until that one is settled, and settles msg in the same way. If the broker cannot have heard of it, msg
// takes the place of the other copy. Call the returned function when msg is settled, or the wait has ended.
func (w *waiter) claim(ends ending,
	msg *message.Message) (leave func(became outcome, waited time.Duration), claimed bool) {
	none := func(outcome, time.Duration) {}
	// In a transaction an ack can be undone, with what the handler wrote: the message must be handled again.
	if w.sub.redelivery.InTransaction || chain.TransactionOf(msg.Context()) != nil {
		return none, true
	}
	id, named, ok := w.at.identify(msg)
	if !ok {
		return none, true
	}
	copies := &w.at.of.stages.copies
	for first := true; ; first = false {
		own, other, waited, wasAcked := copies.enter(id)
		switch {
		case own != nil:
			return func(became outcome, waited time.Duration) { copies.leave(id, own, became, waited, named) }, true
		case wasAcked:
			if waited >= minHold { // it was the wait, and not the handler, that took long
				w.cameAgain(msg, waited)
			}
			msg.Ack()
			return none, false
		}
		if first {
			w.cameAgain(msg, time.Since(other.since))
		}
		select {
		case <-other.settled:
		case <-ends.router.Done():
			return none, false
		case <-ends.taking.Done():
			return none, false
		}
		switch other.outcome {
		case acked:
			msg.Ack()
			return none, false
		case requeued:
			return none, false
		}
	}
}

// cameAgain notes that the broker delivered a message again that was held here for a time.
func (w *waiter) cameAgain(msg *message.Message, after time.Duration) {
	w.sub.redelivery.CameAgain(w.log(), after, logging.Fields{
		logging.Handler: w.at.of.name, logging.StageTopic: w.at.topic, logging.MessageID: msg.UUID,
	})
}

// outcomeOf returns what became of a message. Its outcome is unknown to the broker, or to this process, if one of the
// contexts ended.
func outcomeOf(msg *message.Message, contexts ...context.Context) outcome {
	select {
	case <-msg.Acked():
		return acked
	default:
	}
	for _, ctx := range contexts {
		if ctx.Err() != nil {
			return abandoned
		}
	}
	return requeued
}

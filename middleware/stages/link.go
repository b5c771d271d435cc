package stages

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/logging"
)

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
		case givenBack:
			return none, false
		}
	}
}

// cameAgain notes that the broker delivered a message again that was held here for a time.
func (w *waiter) cameAgain(msg *message.Message, after time.Duration) {
	sub := w.sub
	if !sub.redelivery.Learn(after) {
		return
	}
	sub.told.Do(func() {
		logging.HeldCopy.Write(w.log(), errRedelivered, logging.Fields{
			logging.Handler: w.at.of.name, logging.StageTopic: w.at.topic, logging.MessageID: msg.UUID, logging.After: after,
			logging.Held: w.at.maxHold(),
		})
	})
}

var errRedelivered = errors.New("another instance would have handled it too: give the subscriber a method " +
	"RedeliveryTime that returns the broker's redelivery time")

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
	return givenBack
}

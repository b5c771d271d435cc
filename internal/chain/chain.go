// Package chain runs the parts of Spillway around a handler as one Call per message. So they share one snapshot of the
// message as it arrived.
//
// Each part has a Step, which wraps the Steps further in. A part's own Middleware is a chain of its Step alone. The
// front door makes one chain of all parts with EnterParts. On the way out each part returns an Outcome: what becomes of
// the message, and why.
//
//	Enter(a, b)(handler)(msg)
//	      │  begin: the snapshot of msg
//	      ▼
//	      a ──▶ b ──▶ handler
//	      │
//	      ▼  an error, a panic or runtime.Goexit leaves: msg is restored
//
// Parts share facts in the Call, and in values of the message's context:
//
//   - Claim: a receiver's transaction is open.
//   - Reentry: the message comes out of a retry stage.
//   - Transaction: the subscriber consumes the message in a transaction.
//   - Own: one of Spillway's own handlers consumes the message.
//   - Returning: Spillway itself publishes the message.
package chain

import (
	"fmt"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
)

// Handler handles one call, as a message.HandlerFunc handles one message.
type Handler func(*Call) ([]*message.Message, Outcome)

// Step is one part of a chain: it wraps the part further in. It is applied once per handler, not per message.
type Step func(next Handler) Handler

// Enter returns the middleware that takes the snapshot and runs steps around a handler, the first step outermost. When
// it returns an error, the message is as it arrived. Messages of Spillway's own handlers skip the steps.
func Enter(steps ...Step) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		run := Handler(func(c *Call) ([]*message.Message, Outcome) {
			out, err := h(c.Msg)
			if err == nil { // here, so that the happy path has one call less
				return out, Outcome{}
			}
			return out, OutcomeOf(err)
		})
		for i := len(steps) - 1; i >= 0; i-- {
			run = steps[i](run)
		}
		var known atomic.Bool // the handler is not Spillway's own: its subscriber does not change
		return func(msg *message.Message) ([]*message.Message, error) {
			if !known.Load() {
				if IsOwn(msg.Context()) {
					return h(msg)
				}
				known.Store(true)
			}
			var lane placing.Laned
			if placing.Lanes.Load() {
				lane = placing.LaneOf(msg.Context(), msg)
			}
			if stages.Load() {
				if r := ReentryOf(msg.Context()); r != nil {
					r.identify(msg)
					return enter(run, msg, r, lane)
				}
			}
			return enter(run, msg, nil, lane)
		}
	}
}

func enter(run Handler, msg *message.Message, r *Reentry, lane placing.Laned) ([]*message.Message, error) {
	c := begin(msg)
	c.Lane = lane
	if c.Reentry = r; r != nil {
		c.held = r.Held
	}
	failed := true // after a panic or runtime.Goexit the message is restored too
	defer func() {
		if failed && !c.Nacked() { // a nacked message may be on its way again already
			c.Restore()
		}
		lane := c.Lane // again: the happy path is faster if this function captures less
		c.end()
		if lane != nil {
			lane.Return()
		}
	}()
	out, o := run(c)
	failed = o.Next != Done
	return out, o.Why
}

// Part is a part of chains. The front door composes parts of many packages with EnterParts. A type is a Part if it
// embeds a Link, so no part exports a method with a type of this package.
type Part interface{ step() Step }

// Link makes the type that embeds it a Part. A public type embeds it under an unexported name.
type Link struct{ of Step }

// LinkOf returns the Link of a part with this step.
func LinkOf(step Step) Link { return Link{step} }

func (l Link) step() Step { return l.of }

// EnterParts is Enter with the steps of parts, the first one outermost.
func EnterParts(parts ...Part) message.HandlerMiddleware {
	steps := make([]Step, len(parts))
	for i, part := range parts {
		steps[i] = part.step()
	}
	return Enter(steps...)
}

// StepOf returns the step of a part.
func StepOf(part Part) Step { return part.step() }

// Recover is the Part of middleware.Recover.
var Recover Part = LinkOf(recovered)

func recovered(next Handler) Handler {
	return func(c *Call) (out []*message.Message, o Outcome) {
		defer func() {
			if v := recover(); v != nil {
				out, o = nil, Outcome{Next: Failed, Why: safecall.Panicked(v)}
			}
		}()
		if out, o = next(c); o.Next != Done {
			return nil, o
		}
		for i := range out {
			if out[i] == nil {
				return nil, Outcome{Next: Failed,
					Why: classify.Permanent(fmt.Errorf("middleware: the handler returned %d output "+
						"message(s), of which number %d is nil: return messages only", len(out), i+1))}
			}
		}
		return out, o
	}
}

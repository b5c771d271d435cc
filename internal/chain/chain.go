// Package chain runs the parts of Spillway around a handler as one call per message, so that they share one snapshot
// of the message as it arrived. A part's Middleware is the chain entered with that part's Step alone; the front door
// enters it once with all of them.
package chain

import (
	"errors"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Handler handles one call. It is to Call what message.HandlerFunc is to message.Message.
type Handler func(*Call) ([]*message.Message, error)

// Step is one part's share of a chain: it wraps what lies inside. It is applied once per handler, not per message.
type Step func(next Handler) Handler

// Enter returns the middleware that takes the snapshot and runs steps around a handler, the first one outermost.
// When an error leaves it, the message is again as it arrived. Messages of Spillway's own handlers pass by the steps.
func Enter(steps ...Step) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		run := Handler(func(c *Call) ([]*message.Message, error) {
			out, err := h(c.Msg)
			if err != nil && errors.As(err, new(givenBack)) {
				c.putBack = true
			}
			return out, err
		})
		for i := len(steps) - 1; i >= 0; i-- {
			run = steps[i](run)
		}
		var known atomic.Bool // that the handler is not our own: its subscriber does not change
		return func(msg *message.Message) ([]*message.Message, error) {
			if !known.Load() {
				if IsOwn(msg.Context()) {
					return h(msg)
				}
				known.Store(true)
			}
			if stages.Load() {
				if r := ReentryOf(msg.Context()); r != nil {
					r.identify(msg)
					return enter(run, msg, r)
				}
			}
			return enter(run, msg, nil)
		}
	}
}

func enter(run Handler, msg *message.Message, r *Reentry) (out []*message.Message, err error) {
	c := begin(msg)
	c.Reentry = r
	failed := true // until told otherwise: a panic or runtime.Goexit leaves the message as it arrived too
	defer func() {
		if failed && !c.Nacked() { // who nacked it himself gave it away: it may be on its way again already
			c.Restore()
		}
		c.end()
	}()
	out, err = run(c)
	failed = err != nil
	return out, err
}

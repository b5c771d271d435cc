package chain

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/safecall"
)

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
				return nil, Outcome{Next: Failed, Why: classify.Permanent(fmt.Errorf("middleware: the handler returned %d output "+
					"message(s), of which number %d is nil: return messages only", len(out), i+1))}
			}
		}
		return out, o
	}
}

package middleware

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
)

// Recover turns what ends a handler without an error into one: a panic, with its value and stack, and a nil message
// among the outputs, over which the router would panic later. It stands innermost, next to the handler.
// runtime.Goexit passes: only poison.Queue can settle it. The zero value is ready to use.
type Recover struct{}

// Middleware returns a *classify.PanicError, with no outputs, where h panics.
func (r Recover) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return chain.Enter(r.step)(h)
}

func init() { chain.Register((Recover).step) }

func (Recover) step(next chain.Handler) chain.Handler {
	return func(c *chain.Call) (out []*message.Message, err error) {
		defer func() {
			if v := recover(); v != nil {
				out, err = nil, classify.NewPanicError(v)
			}
		}()
		out, err = next(c)
		if err != nil {
			return nil, err
		}
		for i := range out {
			if out[i] == nil {
				return nil, classify.Permanent(fmt.Errorf("middleware: the handler returned %d output message(s) and number %d is nil", len(out), i+1))
			}
		}
		return out, nil
	}
}

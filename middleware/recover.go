package middleware

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/safecall"
)

// Recover makes an error of a handler's panic, with its value and stack. It also makes an error of a nil message among
// the outputs, which would make the router panic. It belongs innermost, next to the handler. It does not stop
// runtime.Goexit, which poison.Queue settles. The zero value is ready to use.
type Recover struct{}

// Middleware returns a *classify.PanicError and no outputs if h panics.
func (r Recover) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return chain.Enter(r.step)(h)
}

func init() { chain.Register((Recover).step) }

func (Recover) step(next chain.Handler) chain.Handler {
	return func(c *chain.Call) (out []*message.Message, err error) {
		defer func() {
			if v := recover(); v != nil {
				out, err = nil, safecall.Panicked(v)
			}
		}()
		out, err = next(c)
		if err != nil {
			return nil, err
		}
		for i := range out {
			if out[i] == nil {
				return nil, classify.Permanent(fmt.Errorf("middleware: the handler returned %d output message(s), of which "+
					"number %d is nil: return messages only", len(out), i+1))
			}
		}
		return out, nil
	}
}

package middleware

import (
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
)

// Recover makes an error of a handler's panic, with its value and stack. It also makes an error of a nil message among
// the outputs, which would make the router panic. It belongs innermost, next to the handler. It does not stop
// runtime.Goexit, which poison.Queue settles. The zero value is ready to use.
type Recover struct{}

// Middleware returns a *classify.PanicError and no outputs if h panics.
func (Recover) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return chain.EnterParts(chain.Recover)(h)
}

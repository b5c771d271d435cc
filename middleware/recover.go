package middleware

import (
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
)

// Recover is a middleware that makes a *classify.PanicError of a panic of h, with its value and stack. It also makes an
// error of a nil message among the outputs, which would make the router panic. It belongs innermost, next to the
// handler. It does not stop runtime.Goexit, which poison.Queue settles.
func Recover(h message.HandlerFunc) message.HandlerFunc {
	return chain.EnterParts(chain.Recover)(h)
}

package poison

import (
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/deadletter"
)

// MarkUnreadable marks msg as one that could not be read because of err. An adapter calls it where it unmarshals, and
// delivers the raw bytes as the payload. If it returned the error instead, its subscriber would stand still. A Queue
// dead-letters the message as invalid, with reason unmarshal_error, before any handler sees it. So every handler of
// such a subscriber needs a Queue. The mark has no effect in another process.
func MarkUnreadable(msg *message.Message, err error) { deadletter.MarkUnreadable(msg, err) }

// readable stands between the queue and what lies inside, so that no handler gets a message that could not be read.
func readable(next chain.Handler) chain.Handler {
	return func(c *chain.Call) ([]*message.Message, chain.Outcome) {
		if err := deadletter.Marked(c.Arrived(deadletter.KeyMarked)); err != nil {
			return nil, chain.Outcome{Next: chain.DeadLetter, Why: err}
		}
		return next(c)
	}
}

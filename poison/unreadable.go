package poison

import (
	"crypto/rand"
	"errors"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
)

// keyUnreadable marks a message that its adapter could not read. The mark is metadata, because subscribers set contexts
// after they unmarshal, and redeliver copies. What makes it believed is this process's token, so that no producer can
// have a good message set aside.
const keyUnreadable = "x-spillway-unreadable"

var unreadableToken = sync.OnceValue(rand.Text)

// MarkUnreadable marks msg as one that could not be read because of err. An adapter calls it where it unmarshals, and
// delivers the raw bytes as the payload. If it returned the error instead, its subscriber would stand still. A Queue
// dead-letters the message as invalid, with reason unmarshal_error, before any handler sees it. So every handler of
// such a subscriber needs a Queue. The mark has no effect in another process.
func MarkUnreadable(msg *message.Message, err error) {
	if msg.Metadata == nil {
		msg.Metadata = message.Metadata{}
	}
	msg.Metadata[keyUnreadable] = unreadableToken() + markUnreadable + boundedtext.Error(err, 1<<10)
}

// MarkMaxDeliveries marks msg as one that was delivered as often as it may be and never settled; err says why. A Queue
// dead-letters it with reason max_delivery_count_exceeded before any handler sees it again. As with MarkUnreadable,
// every handler of such a subscriber needs a Queue.
func MarkMaxDeliveries(msg *message.Message, err error) {
	if msg.Metadata == nil {
		msg.Metadata = message.Metadata{}
	}
	msg.Metadata[keyUnreadable] = unreadableToken() + markExhausted + boundedtext.Error(err, 1<<10)
}

// The first letter of what stands behind the token.
const (
	markUnreadable = "u"
	markExhausted  = "d"
)

// UnreadableError returns the error of MarkUnreadable, as an invalid error with reason unmarshal_error, or that of
// MarkMaxDeliveries. It returns nil for a message without a mark. It is for middlewares outside a Queue.
func UnreadableError(msg *message.Message) error {
	if msg == nil {
		return nil
	}
	return unreadable(msg.Metadata[keyUnreadable])
}

func unreadable(mark string) error {
	if mark == "" {
		return nil
	}
	text, own := strings.CutPrefix(mark, unreadableToken())
	if !own {
		return nil
	}
	if text, exhausted := strings.CutPrefix(text, markExhausted); exhausted {
		return classify.Permanent(errors.New(text), classify.Reason(classify.ReasonMaxDeliveries))
	}
	return classify.Invalid(errors.New(strings.TrimPrefix(text, markUnreadable)),
		classify.Reason(classify.ReasonUnmarshal))
}

// readable stands between the queue and what lies inside, so that no handler gets a message that could not be read.
func readable(next chain.Handler) chain.Handler {
	return func(c *chain.Call) ([]*message.Message, error) {
		if err := unreadable(c.Arrived(keyUnreadable)); err != nil {
			return nil, err
		}
		return next(c)
	}
}

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

// MarkUnreadable marks msg as one that could not be read, because of err. Adapters call it where they unmarshal, and
// hand over the raw bytes as the payload instead of returning the error, with which a subscriber would stand still. A
// Queue sets such a message aside as invalid, with reason unmarshal_error, before any handler sees it; so a subscriber
// that marks needs a Queue around every handler. The mark means nothing to any other process.
func MarkUnreadable(msg *message.Message, err error) {
	if msg.Metadata == nil {
		msg.Metadata = message.Metadata{}
	}
	msg.Metadata[keyUnreadable] = unreadableToken() + markUnreadable + boundedtext.Error(err, 1<<10)
}

// MarkMaxDeliveries marks msg as one that was delivered as often as it may be without anybody settling it, for the reason
// that err tells: handlers that never came to an end in their time. A Queue sets it aside with reason
// max_delivery_count_exceeded, before any handler sees it again. What is said of MarkUnreadable holds here too.
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

// UnreadableError returns why the adapter could not read msg, as an invalid error with reason unmarshal_error, or why it
// does not deliver it to a handler any more, as MarkMaxDeliveries says, and nil for every other message. It is for
// middlewares that stand outside of a Queue.
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
	return classify.Invalid(errors.New(strings.TrimPrefix(text, markUnreadable)), classify.Reason(classify.ReasonUnmarshal))
}

// readable stands between the queue and what lies inside: nobody is to handle what nobody could read.
func readable(next chain.Handler) chain.Handler {
	return func(c *chain.Call) ([]*message.Message, error) {
		if err := unreadable(c.Arrived(keyUnreadable)); err != nil {
			return nil, err
		}
		return next(c)
	}
}

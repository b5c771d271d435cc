package deadletter

import (
	"crypto/rand"
	"errors"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
)

// KeyMarked is the metadata key of the mark on a message that its adapter could not read, or delivered too often. The
// mark is metadata, because subscribers set contexts after they unmarshal, and redeliver copies. What makes it believed
// is this process's token, so that no producer can have a good message dead-lettered.
const KeyMarked = "x-spillway-unreadable"

var token = sync.OnceValue(rand.Text)

// The first letter of what stands behind the token.
const (
	markUnreadable = "u"
	markExhausted  = "d"
)

// MarkUnreadable is poison.MarkUnreadable.
func MarkUnreadable(msg *message.Message, err error) { mark(msg, markUnreadable, err) }

// MarkExhausted marks msg as one that was delivered as often as it may be and never settled; err says why. A queue
// dead-letters it with reason max_delivery_count_exceeded before any handler sees it again.
func MarkExhausted(msg *message.Message, err error) { mark(msg, markExhausted, err) }

func mark(msg *message.Message, what string, err error) {
	if msg.Metadata == nil {
		msg.Metadata = message.Metadata{}
	}
	msg.Metadata[KeyMarked] = token() + what + boundedtext.Error(err, 1<<10)
}

// Marked returns the error of a mark that this process made, with its class and reason, or nil.
func Marked(mark string) error {
	if mark == "" {
		return nil
	}
	text, own := strings.CutPrefix(mark, token())
	if !own {
		return nil
	}
	if text, exhausted := strings.CutPrefix(text, markExhausted); exhausted {
		return classify.Permanent(errors.New(text), classify.Reason(classify.ReasonMaxDeliveries))
	}
	return classify.Invalid(errors.New(strings.TrimPrefix(text, markUnreadable)),
		classify.Reason(classify.ReasonUnmarshal))
}

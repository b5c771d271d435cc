// Package deadletter has what the parts of Spillway know of dead letters below package poison: the stage that a message
// waits in, and the marks of messages that no handler may see.
package deadletter

import (
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
)

// Stage says in which retry stage a message waits, and until when. A value that is absent or impossible is zero.
type Stage struct {
	// Number counts stages from 1. It is 0 for a message that waited in none.
	Number int
	// DueAt is when the message is handled again, by the clock of the process that sent it there.
	DueAt time.Time
	// HoldUntil is when the message goes to the end of its stage, where no consumer can hold it until it is due.
	HoldUntil time.Time
}

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

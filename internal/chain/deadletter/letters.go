// Package deadletter is what the other parts of Spillway need of dead letters and users do not: the inside of a
// poison.Queue, and the marks of messages that no handler may see.
package deadletter

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
	"github.com/watermill-spillway/spillway/seal"
)

// Letters is package poison as the other parts see it: poison.Inside returns it.
type Letters interface {
	// IsLetter reports whether msg carries the failure of a dead letter. A message in a retry stage carries one too:
	// see StageOf.
	IsLetter(msg *message.Message) bool
	// ProducerMetadata returns metadata without the keys of package poison and of the other writers whose letters it
	// reads. It returns a copy, or metadata itself if it has none of these keys. Headers of other
	// writers are removed only from a letter: a count of attempts alone, as in a message on its way through retry
	// topics, stays, and so does RabbitMQ's x-death.
	ProducerMetadata(metadata message.Metadata) message.Metadata
	// Publish publishes messages through pub. One that pub refuses for what it carries is offered once more, without the
	// metadata that are packed in it.
	Publish(pub message.Publisher, topic string, messages ...*message.Message) error
	// StageOf reads which retry stage msg waits in, or came from. The values are those of the message and are not
	// verified.
	StageOf(msg *message.Message) Stage
	// Seal returns a copy of a dead letter with its payload and its producer's metadata sealed with the current key.
	// All that poison.Read reads stays readable. changed reports whether it is a copy: a letter that the current key
	// sealed already is returned as it is.
	Seal(ctx context.Context, s *seal.Sealer, msg *message.Message) (_ *message.Message, changed bool, err error)
}

// Stage says in which retry stage a message waits, and until when. A value that is absent or impossible is zero.
type Stage struct {
	// Number counts stages from 1. It is 0 for a message that waited in none.
	Number int
	// DueAt is when the message is handled again, by the clock of the process that sent it there.
	DueAt time.Time
	// HoldUntil is when the message goes to the end of its stage, where no consumer can hold it until it is due.
	HoldUntil time.Time
}

// Inside is a poison.Queue as the other parts see it: its method Inside returns it.
type Inside interface {
	// IsDeadLetterTopic reports whether topic is one of dead letters, by its name: what fails in its consumer is
	// parked.
	IsDeadLetterTopic(topic string) bool
	// Initialize makes sure that the dead-letter topics of a handler of topic exist, with every publisher that is a
	// poison.Initializer.
	Initialize(topic, handler string) error
	// CheckPublisher returns an error if pub, a handler's publisher, is one that takes the dead letters: the router
	// closes it when that handler stops, and then nothing takes the letters of the other handlers.
	CheckPublisher(pub message.Publisher) error
	// Classifier returns QueueConfig.Classifier, which decides what is a refusal for size. It may be nil.
	Classifier() *classify.Classifier
	// Cause returns err as a log line may have it: the head of its text, masked by the Privacy of its QueueConfig.
	Cause(err error) error
	// Error returns err with its text masked, for hooks. It wraps err.
	Error(err error) error
	// Shown returns v with its texts masked, for hooks and tracers.
	Shown(v classify.Verdict) classify.Verdict
	// ForStage returns the message that is published to a retry stage in place of original, a message as it arrived. It
	// has original's origin and the failure so far, earlier stages included, without the stack. The context of the
	// message has the values of original's context and does not end with it. ForStage takes over original.
	ForStage(original *message.Message, failure *classify.Failure, number int, due,
		holdUntil time.Time) *message.Message
	// FromStage restores what ForStage packed of msg, which comes out of a retry stage: the id and the metadata that a
	// transport could have changed.
	FromStage(msg *message.Message)
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

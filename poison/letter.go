package poison

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/attempts"
	"github.com/watermill-spillway/spillway/internal/chain/deadletter"
	"github.com/watermill-spillway/spillway/internal/errs/errorkind"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
)

// Letter is a dead letter: the message as it arrived, and why it failed.
type Letter struct {
	// Original is the message as it arrived: its id, the producer's metadata, its payload byte for byte.
	// None of this package's metadata keys is left on it.
	Original *message.Message
	// Identity is the letter's own name in its letters.Store, 32 hexadecimal digits. It stays the same for as long as
	// the letter is there, and is made of nothing that the message has. It is empty elsewhere.
	Identity string
	// DeadLetterTopic is the topic that the letter was placed in, empty before that and after Decode.
	DeadLetterTopic string

	// Sealed says that Original is sealed: its payload is an envelope of package seal, and its metadata are those that
	// stay readable. Open returns the letter with what was sealed.
	Sealed bool
	// SealKey is the id of the key that a sealed letter needs. It is empty if that cannot be read.
	SealKey string

	Origin  Origin
	Failure Failure
	Redrive Redrive
	// Trace is the observe.Tracer's text for the operation that placed the letter, such as a W3C traceparent. It is
	// empty without a Tracer.
	Trace string

	redriven bool // on its way back: no dead letter any more
	stage    deadletter.Stage
	parked   *message.Message // as it arrived in its dead-letter topic, where it failed
}

// Origin says where a message first came from. Fields that its broker does not have are empty.
type Origin struct {
	Topic         string
	Partition     string
	Offset        string
	Timestamp     time.Time
	Key           []byte
	MessageID     string
	Handler       string
	ConsumerGroup string
	// Exchange and RoutingKey say how AMQP brought the message into its queue.
	Exchange   string
	RoutingKey string
}

// Failure says why a message was dead-lettered.
type Failure struct {
	Class       classify.Class
	Reason      string
	Description string
	// Type is the chain of error types, outermost first, joined by " > ".
	Type string
	// Stack is the stack of a panic, or the one an error of github.com/pkg/errors carries, innermost frame first.
	Stack string
	// StackHash is the same for every failure with the same frames, whatever the addresses and arguments.
	StackHash string
	// Node is the host that gave up on the message.
	Node string
	// Attempts counts how often the message was tried since it was published or redriven. Attempts that ended before
	// the handler count too.
	Attempts      int
	FirstFailedAt time.Time
	LastFailedAt  time.Time
	// History holds the latest failed attempts, oldest first, across redrives; at most attempts.Kept.
	History []classify.Attempt
}

// Redrive says how often and by whom a message was redriven. The zero value is a message that was never redriven.
type Redrive struct {
	Count int
	At    time.Time
	By    string
	ID    string
	// Letter is the Identity of the letter that the message was brought back from. It is empty if that letter was in no
	// letters.Store.
	Letter string
}

// fail writes the story of f into the letter, over whatever an earlier failure left there.
func (l *Letter) fail(f *classify.Failure, node string) {
	stack := stackOf(f.Err)
	description := f.Verdict.Description
	if description == "" {
		description = textOf(f.Err)
	}
	l.Failure = Failure{
		Class:         f.Verdict.Class,
		Reason:        attempts.Reason(f.Verdict),
		Description:   description,
		Type:          errorkind.Types(f.Err),
		Stack:         stack,
		StackHash:     hashStack(stack),
		Node:          node,
		Attempts:      f.Attempts,
		FirstFailedAt: f.First,
		LastFailedAt:  f.Last,
		History:       attempts.Latest(append(l.Failure.History, f.History...)),
	}
}

// goOn adds the attempts of earlier stages.
func (f *Failure) goOn(earlier Failure) {
	f.Attempts += earlier.Attempts
	if first := earlier.FirstFailedAt; !first.IsZero() && first.Before(f.FirstFailedAt) {
		f.FirstFailedAt = first
	}
}

// Redriven returns the message to publish when the letter is redriven: the original with its origin, its history and
// one more redrive on record, and nothing of the failure. by names the operator, and id the campaign.
func (l Letter) Redriven(by, id string, at time.Time) *message.Message {
	l.Redrive = Redrive{Count: l.Redrive.Count + 1, At: at, By: by, ID: id, Letter: l.Identity}
	l.Failure, l.redriven = Failure{History: l.Failure.History}, true
	msg := l.encode(defaultLimits)
	msg.SetContext(chain.Returning(msg.Context()))
	return msg
}

// identityLength is the number of hexadecimal digits of a Letter.Identity.
const identityLength = 32

// identityOrNone returns value if it can be a Letter.Identity, and else nothing: any producer may have written it.
func identityOrNone(value string) string {
	if len(value) != identityLength {
		return ""
	}
	for _, c := range []byte(value) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return ""
		}
	}
	return value
}

// stageOf is deadletter.Letters.StageOf.
func stageOf(msg *message.Message) deadletter.Stage {
	if msg == nil {
		return deadletter.Stage{}
	}
	return deadletter.Stage{
		Number:    boundedtext.Count(msg.Metadata[KeyRetryStage]),
		DueAt:     boundedtext.Time(msg.Metadata[KeyRetryDueAt]),
		HoldUntil: boundedtext.Time(msg.Metadata[KeyRetryHoldUntil]),
	}
}

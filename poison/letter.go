package poison

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/attempts"
	"github.com/watermill-spillway/spillway/internal/chain/deadletter"
	"github.com/watermill-spillway/spillway/internal/errs"
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
		Type:          typesOf(f.Err),
		Stack:         stack,
		StackHash:     hashStack(stack),
		Node:          node,
		Attempts:      f.Attempts,
		FirstFailedAt: f.First,
		LastFailedAt:  f.Last,
		History:       slices.Clone(f.History), // its texts will be masked
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

// isIdentity reports whether value can be a Letter.Identity, which has 32 hexadecimal digits: any producer may have
// written it.
func isIdentity(value string) bool {
	return len(value) == 32 && strings.Trim(value, "0123456789abcdef") == ""
}

// maxText bounds what is taken from an error before the budget cuts it further.
const maxText = 64 << 10

func textOf(err error) string { return boundedtext.Error(err, maxText) }

// stackOf returns the stack of a panic, or the one that an error of github.com/pkg/errors carries.
func stackOf(err error) (stack string) {
	defer func() { _ = recover() }() // methods of the error are called
	if panicked, ok := errs.Find[*classify.PanicError](err); ok {
		return handlerFrames(panicFrames(string(panicked.Stack)))
	}
	return handlerFrames(carriedFrames(err))
}

// handlerFrames cuts a stack where Spillway's own frames begin, outside of the handler: they do not explain the cause
// and differ between attempts.
func handlerFrames(stack string) string {
	for from := 0; ; {
		i := strings.Index(stack[from:], "github.com/watermill-spillway/spillway")
		if i < 0 {
			return stack
		}
		from += i
		end := strings.IndexByte(stack[from:], '\n')
		if end < 0 {
			return stack
		}
		frame := stack[from : from+end]
		if lineStart := from == 0 || stack[from-1] == '\n'; lineStart && from > 0 &&
			(strings.Contains(frame, "Recover.step") || strings.Contains(frame, ".Enter.func")) {
			return stack[:from]
		}
		from += end
	}
}

// panicFrames drops the frames of the recovery itself: everything up to the innermost call of panic.
func panicFrames(stack string) string {
	const call = "\npanic("
	frames := stack
	for {
		i := strings.Index(frames, call)
		if i < 0 {
			break
		}
		frames = frames[i+1:]
	}
	if len(frames) < len(stack) {
		if below := nthLine(frames, 2); below != "" { // the call of panic and its place
			return below
		}
	}
	return nthLine(stack, 1) // "goroutine 1 [running]:"
}

func nthLine(s string, n int) string {
	for ; n > 0; n-- {
		_, rest, ok := strings.Cut(s, "\n")
		if !ok {
			return ""
		}
		s = rest
	}
	return s
}

// carriedFrames looks for the innermost StackTrace method that returns program counters, as the errors of
// github.com/pkg/errors have it, and writes the frames as a panic's stack is written.
func carriedFrames(err error) string {
	var counters []uintptr
	for depth := 0; err != nil && depth < 64; depth++ {
		if method := reflect.ValueOf(err).MethodByName("StackTrace"); method.IsValid() && method.Type().NumIn() == 0 &&
			method.Type().NumOut() == 1 {
			if trace := method.Call(nil)[0]; trace.Kind() == reflect.Slice &&
				trace.Type().Elem().Kind() == reflect.Uintptr {
				counters = counters[:0]
				for i := range min(trace.Len(), 64) {
					counters = append(counters, uintptr(trace.Index(i).Uint()))
				}
			}
		}
		err = errors.Unwrap(err)
	}
	if len(counters) == 0 {
		return ""
	}
	var b strings.Builder
	frames := runtime.CallersFrames(counters)
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		b.WriteString(frame.Function + "(...)\n\t" + frame.File + ":" + strconv.Itoa(frame.Line) + "\n")
	}
	return b.String()
}

// hashStack hashes the functions and lines of a stack and leaves out what differs between two runs: arguments,
// addresses, goroutine ids.
func hashStack(stack string) string {
	if stack == "" {
		return ""
	}
	frames := make([]byte, 0, len(stack))
	for len(stack) > 0 {
		line, rest, _ := strings.Cut(stack, "\n")
		stack = rest
		if strings.HasPrefix(line, "\t") {
			line = before(line, strings.LastIndex(line, " +0x"))
		} else {
			line = before(line, strings.Index(line, " in goroutine "))
			line = before(line, strings.LastIndexByte(line, '('))
		}
		frames = append(append(frames, line...), '\n')
	}
	sum := sha256.Sum256(frames)
	return hex.EncodeToString(sum[:8])
}

func before(line string, i int) string {
	if i > 0 {
		return line[:i]
	}
	return line
}

// maxCause bounds the text of an attempt's error.
const maxCause = 256

// entry is an attempt as the history has it.
type entry struct {
	At    string `json:"at"`
	Class string `json:"class"`
	Error string `json:"error,omitempty"`
}

// encodeHistory writes the attempts as a JSON array of entries. The oldest go first if there are too many, or the line
// does not fit.
func encodeHistory(history []classify.Attempt, limit int) string {
	entries := make([]entry, 0, attempts.Kept)
	for _, a := range attempts.Latest(slices.Clone(history)) {
		entries = append(entries, entry{a.At.UTC().Format(time.RFC3339Nano), a.Class.String(),
			boundedtext.Text(a.Error, maxCause)})
	}
	for ; len(entries) > 0; entries = entries[1:] {
		if line := quoted(entries); len(line) <= limit {
			return line
		}
	}
	return ""
}

// decodeHistory reads what can be read of a history, without attempts whose time or class cannot be one.
func decodeHistory(text string) (history []classify.Attempt) {
	var entries []entry
	_ = json.Unmarshal([]byte(text), &entries)
	for _, e := range entries {
		a := classify.Attempt{At: boundedtext.Time(e.At), Error: boundedtext.Text(e.Error, maxCause)}
		if a.Class.UnmarshalText([]byte(e.Class)) == nil && !a.At.IsZero() {
			history = append(history, a)
		}
	}
	return attempts.Latest(history)
}

// maxCauses bounds how many causes of an error are named.
const maxCauses = 16

// typesOf names the types of err and its first causes, outermost first. It leaves out the wrappers of fmt, and the marks
// and failures of package classify.
func typesOf(err error) string {
	var types []string
	looked := 0
	for one := range errs.First(err) {
		if looked++; looked > maxCauses {
			break
		}
		name := reflect.TypeOf(one).String()
		if !strings.HasPrefix(name, "*fmt.wrapError") && name != "*classify.marked" && name != "*classify.Failure" {
			types = append(types, name)
		}
	}
	return strings.Join(types, " > ")
}

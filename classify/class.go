package classify

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/errs"
)

// Class says what can be done about an error. The zero value is ClassUnknown. String returns its lower-case name, which
// stands in metadata and logs; so does MarshalText, and UnmarshalText reads it.
type Class = errs.Class

const (
	// ClassUnknown is the class of an error that no mark, rule or knowledge covers. It is retried like a transient one.
	ClassUnknown = errs.Unknown
	// ClassTransient passes with time: a downstream is down, a lock is held. A retry may succeed.
	ClassTransient = errs.Transient
	// ClassPermanent does not pass with time: a bug, a violated constraint, a panic. A retry would fail too.
	ClassPermanent = errs.Permanent
	// ClassInvalid means that the message itself is unacceptable: malformed, or without what it must have.
	ClassInvalid = errs.Invalid
	// ClassDiscard means that the message may be dropped: it is acked and counted, and placed nowhere.
	ClassDiscard = errs.Discard
	// ClassAborted means that the message's own context ended: a shutdown, a rebalance, a lost session. The message is
	// nacked and nothing is counted. The context of the message decides it, never an error.
	ClassAborted = errs.Aborted
)

// severity orders classes where joined errors disagree: the one that most needs a person wins. Discard comes last,
// so that a failure joined to it is never dropped; knowledge of a transient cause outweighs no knowledge.
func severity(c Class) int {
	return [...]int{ClassDiscard: 0, ClassUnknown: 1, ClassTransient: 2, ClassPermanent: 3, ClassInvalid: 4}[c]
}

// Reasons that Spillway sets. Applications set their own with Reason.
const (
	ReasonTransientMaxRetries = "transient_max_retries"
	ReasonUnknownMaxRetries   = "unknown_max_retries"
	ReasonPermanent           = "permanent_error"
	ReasonInvalid             = "invalid_message"
	ReasonPanic               = "panic"
	ReasonGoexit              = "goexit"
	ReasonUnmarshal           = "unmarshal_error"
	ReasonExpired             = "ttl_expired"
	ReasonMaxDeliveries       = "max_delivery_count_exceeded"
	ReasonMaxHops             = "max_hop_count_exceeded"
	ReasonKeyReused           = "key_reused"
	ReasonMissingMetadata     = "missing_metadata"
	ReasonOutput              = "output_undeliverable"
	ReasonMaxRedrives         = "max_redrives_exceeded"
	ReasonSkipped             = "skipped"
)

// Verdict is what is known about an error. A zero field means "unknown".
type Verdict struct {
	// Class says what can be done.
	Class Class
	// Reason is a short code for programs, lower case with underscores.
	Reason string
	// Description is a sentence for people. Default: the text of the error.
	Description string
	// RetryAfter is the least time to wait before the next attempt.
	RetryAfter time.Duration
	// NotNow says that nothing failed: the message comes again later and is not counted. It needs ClassTransient, which
	// counts if the condition lasts too long. See the function NotNow.
	NotNow bool
	// Unavailable says that the error is not about the message: something that the handler needs is unavailable, and other
	// messages would fail too. It needs ClassTransient, which a verdict with Unavailable alone gets. See the function
	// Unavailable.
	Unavailable bool
	// TooLarge says that a publisher refused the message for its size. It needs ClassPermanent, which a verdict with
	// TooLarge alone gets. See the function TooLarge.
	TooLarge bool
}

// sayable is v without a class that no mark and no rule can give: ClassAborted, or one out of range. Unavailable and
// TooLarge give a class, or have no meaning beside it.
func (v Verdict) sayable() Verdict {
	if v.Class >= ClassAborted {
		v.Class = ClassUnknown
	}
	if v.Unavailable && v.Class == ClassUnknown {
		v.Class = ClassTransient
	}
	v.Unavailable = v.Unavailable && v.Class == ClassTransient
	if v.TooLarge && v.Class == ClassUnknown {
		v.Class = ClassPermanent
	}
	v.TooLarge = v.TooLarge && v.Class == ClassPermanent
	return v
}

// unsayable returns an error if no mark and no rule can give v.
func (v Verdict) unsayable() error {
	if v.Class == ClassAborted {
		return errors.New("it gives the class aborted, which no error has by itself: a message's own context decides it; " +
			"give transient, to try again")
	}
	if v.Class > ClassAborted {
		return fmt.Errorf("it gives the class %d, which does not exist", uint8(v.Class))
	}
	if v.Unavailable && v.sayable().Class != ClassTransient {
		return fmt.Errorf("it gives the class %s with Unavailable: an error that is not about the message passes with time; give "+
			"transient, or leave out Unavailable", v.Class)
	}
	if v.TooLarge && v.sayable().Class != ClassPermanent {
		return fmt.Errorf("it gives the class %s with TooLarge: a size does not pass with time; give permanent, or leave "+
			"out TooLarge", v.Class)
	}
	return nil
}

// fill takes from other what v does not say.
func (v Verdict) fill(other Verdict) Verdict {
	if v.Class == ClassUnknown {
		v.Class, v.NotNow, v.Unavailable, v.TooLarge = other.Class, other.NotNow, other.Unavailable, other.TooLarge
	}
	if v.Reason == "" {
		v.Reason = other.Reason
	}
	if v.Description == "" {
		v.Description = other.Description
	}
	if v.RetryAfter <= 0 {
		v.RetryAfter = max(other.RetryAfter, 0)
	}
	return v
}

// Option adds to a mark what its class alone does not say.
type Option func(*Verdict)

// Reason sets the application's own reason code, lower case with underscores by convention.
func Reason(code string) Option { return func(v *Verdict) { v.Reason = code } }

// Description sets a sentence for the person who reads the dead letter, instead of the error's text.
func Description(text string) Option { return func(v *Verdict) { v.Description = text } }

// RetryAfter sets the least time to wait before the next attempt, as HTTP's Retry-After does (RFC 9110, 10.2.3).
func RetryAfter(d time.Duration) Option { return func(v *Verdict) { v.RetryAfter = d } }

// RetryAfterHeader is RetryAfter with the value of HTTP's header Retry-After: a number of seconds, or a date. Another
// value, and a date that has passed, say nothing.
func RetryAfterHeader(value string) Option {
	return func(v *Verdict) {
		if wait := parseRetryAfter(value, time.Now()); wait > 0 {
			v.RetryAfter = wait
		}
	}
}

// Transient marks err as passing with time. A nil err stays nil, here and in every mark.
func Transient(err error, opts ...Option) error { return mark(err, ClassTransient, opts) }

// NotNow marks err as no failure: a lock is held, a breaker is open, a tenant is paused. The message is held and
// handled again, or nacked and redelivered; neither counts as an attempt. middleware.Retry does this for an hour; after
// that err is transient, and counts. RetryAfter sets the minimum wait. A rule can return the same:
// Verdict{Class: ClassTransient, NotNow: true}.
func NotNow(err error, opts ...Option) error {
	return mark(err, ClassTransient, append([]Option{func(v *Verdict) { v.NotNow = true }}, opts...))
}

// Unavailable marks err as not about the message: something that the handler needs is unavailable, so other messages
// would fail too. It is transient. A breaker holds messages after such an error instead of trying each one, and
// RetryAfter sets the least time for which it holds them. Without a breaker the mark means the same as Transient.
// Built-in knowledge sets it for errors that say so, such as a refused connection: mark those Transient if only this
// message's own server is unavailable, such as a customer's webhook.
func Unavailable(err error, opts ...Option) error {
	return mark(err, ClassTransient, append([]Option{func(v *Verdict) { v.Unavailable = true }}, opts...))
}

// Permanent marks err as not passing with time: the message is dead-lettered at once.
func Permanent(err error, opts ...Option) error { return mark(err, ClassPermanent, opts) }

// Invalid marks the message itself as unacceptable: it is dead-lettered at once, among the invalid messages.
func Invalid(err error, opts ...Option) error { return mark(err, ClassInvalid, opts) }

// Discard marks the message as one that may be dropped: it is acked and counted, and kept nowhere.
func Discard(err error, opts ...Option) error { return mark(err, ClassDiscard, opts) }

// marked is an error with a verdict. It reads like the error it holds, so that wrapping changes no message.
type marked struct {
	error
	verdict Verdict
}

func (m *marked) Unwrap() error { return m.error }

func mark(err error, class Class, opts []Option) error {
	if err == nil {
		return nil
	}
	m := &marked{error: err, verdict: Verdict{Class: class}}
	for _, opt := range opts {
		if opt != nil {
			opt(&m.verdict)
		}
	}
	return m
}

// Failure records the failed attempts of a message. It is returned up the chain as an error: a retry adds attempts, a
// poison.Queue reads it. A Failure inside another error counts as a mark.
type Failure struct {
	// Err is the error of the latest attempt.
	Err error
	// Verdict is what is known of Err.
	Verdict Verdict
	// Attempts counts the handler invocations.
	Attempts int
	// First and Last are the times of the first and the latest failure.
	First, Last time.Time
	// History holds the latest attempts, oldest first, at most 10.
	History []Attempt
}

// Attempt is one failed handler invocation.
type Attempt struct {
	At    time.Time
	Class Class
	// Error is the head of the error's text, at most 256 bytes.
	Error string
}

// Error returns the text of the latest error with the class and the number of attempts, at most 4 KiB of it.
func (f *Failure) Error() string {
	return fmt.Sprintf("%s after %d attempt(s): %s", f.Verdict.Class, f.Attempts, boundedtext.Error(f.Err, 4<<10))
}

// Unwrap returns the error of the latest attempt.
func (f *Failure) Unwrap() error { return f.Err }

// PanicError is a panic caught in a handler. It does not unwrap to the value: a panic is a bug, whatever was thrown,
// so neither marks nor rules for sentinels see through it. A rule As for *PanicError may still judge it.
type PanicError struct {
	// Value is what was passed to panic. After panic(nil) it is a *runtime.PanicNilError.
	Value any
	// Stack is the stack of the panicking goroutine, as runtime.Stack writes it, cut at 64 KiB.
	Stack []byte
}

// Error returns "panic: " and the text of the value, at most 4 KiB of it.
func (e *PanicError) Error() string {
	return "panic: " + boundedtext.Value(e.Value, 4<<10)
}

// nilTx says what to do about a panic of a handler that used a nil *sql.Tx. For any other panic it is "".
func (e *PanicError) nilTx() string {
	if _, ok := e.Value.(runtime.Error); !ok {
		return ""
	}
	_, after, _ := strings.Cut(string(e.Stack), "\npanic(")
	lines := strings.SplitN(after, "\n", 12)
	for i := 2; i < len(lines); i += 2 { // behind "panic" and its file a function and its file, and so on
		switch name := lines[i]; {
		case strings.HasPrefix(name, "database/sql.(*Tx)."):
			return e.Error() + ": the handler used a *sql.Tx that is nil. idempotency.Tx returns nil if there is no receiver of " +
				"keys, or one with ReceiverConfig.Lease: set Config.DB, or leave Lease out"
		case !strings.HasPrefix(name, "sync"):
			return ""
		}
	}
	return ""
}

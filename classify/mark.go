package classify

import "time"

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

// Away marks err as not about the message: something that the handler needs is away, so other messages would fail too.
// It is transient. A breaker holds messages after such an error instead of trying each one, and RetryAfter sets
// the least time for which it holds them. Without a breaker the mark means the same as Transient. Built-in knowledge
// sets it for errors that say so, such as a refused connection: mark those Transient if only this message's own server
// is away, such as a customer's webhook.
func Away(err error, opts ...Option) error {
	return mark(err, ClassTransient, append([]Option{func(v *Verdict) { v.Away = true }}, opts...))
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

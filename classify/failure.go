package classify

import (
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
)

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
	// History holds the latest attempts, oldest first, at most MaxHistory.
	History []Attempt
}

// Attempt is one failed handler invocation.
type Attempt struct {
	At    time.Time
	Class Class
	// Error is the head of the error's text, at most 256 bytes.
	Error string
}

// MaxHistory bounds how many attempts are kept, here and in a dead letter.
const MaxHistory = 10

// Error returns the text of the latest error with the class and the number of attempts, at most 4 KiB of it.
func (f *Failure) Error() string {
	return fmt.Sprintf("%s after %d attempt(s): %s", f.Verdict.Class, f.Attempts, boundedtext.Error(f.Err, 4<<10))
}

// Unwrap returns the error of the latest attempt.
func (f *Failure) Unwrap() error { return f.Err }

// Add notes a failed attempt at the given time. When err carries a Failure with attempts, of a retry further in, those
// are taken over instead of being counted as one.
func (f *Failure) Add(err error, v Verdict, at time.Time) {
	inner, ok := AsFailure(err)
	if ok && err == error(inner) {
		err = inner.Err
	}
	f.Err, f.Verdict, f.Last = err, v, at
	if f.First.IsZero() {
		f.First = at
	}
	if !ok || inner.Attempts <= 0 { // one that counted nothing is a mark: a retry must get on all the same
		f.Attempts++
		f.History = BoundHistory(append(f.History, Attempt{At: at, Class: v.Class, Error: boundedtext.Error(err, 256)}))
		return
	}
	f.Attempts += inner.Attempts
	if !inner.First.IsZero() && inner.First.Before(f.First) {
		f.First = inner.First
	}
	f.History = BoundHistory(append(f.History, inner.History...))
}

// Failure returns the Failure that err carries, or one of a single attempt that ended now. A nil Classifier has the
// defaults.
func (c *Classifier) Failure(err error) *Failure {
	f, ok := AsFailure(err)
	if !ok || f.Attempts <= 0 {
		f = new(Failure)
		f.Add(err, c.Classify(err), time.Now())
	}
	return f
}

// AsFailure finds the outermost Failure in err. Unlike errors.As it returns from an error that wraps itself, and goes
// on where a method of the error panics.
func AsFailure(err error) (f *Failure, ok bool) {
	f = outermost(err, func(f *Failure) bool { return f != nil })
	return f, f != nil
}

// outermost finds the first T in the tree of err that is wanted.
func outermost[T error](err error, wanted func(T) bool) (found T) {
	hit := false
	new(judgement).search(err, func(err error) (Verdict, bool) {
		if t, is := err.(T); is && !hit && wanted(t) {
			found, hit = t, true
		}
		return Verdict{}, hit
	}, stopAtFirst)
	return found
}

// BoundHistory keeps the latest MaxHistory attempts, in the same array.
func BoundHistory(h []Attempt) []Attempt {
	if len(h) > MaxHistory {
		h = append(h[:0], h[len(h)-MaxHistory:]...)
	}
	return h
}

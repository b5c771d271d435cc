// Package attempts counts the attempts at a message in a classify.Failure.
package attempts

import (
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/errs"
)

// Kept is how many attempts a history has at most, in a Failure and in a dead letter.
const Kept = 10

// Of returns the Failure that err carries, or one of a single attempt that ended now. A nil Classifier has the
// defaults.
func Of(c *classify.Classifier, err error) *classify.Failure {
	f, ok := errs.Find[*classify.Failure](err)
	if !ok || f.Attempts <= 0 {
		f = new(classify.Failure)
		Add(f, err, c.Classify(err), time.Now())
	}
	return f
}

// Add notes in f an attempt that failed at the given time. If err carries a Failure with attempts, of a retry further
// in, those are taken over instead of being counted as one.
func Add(f *classify.Failure, err error, v classify.Verdict, at time.Time) {
	inner, ok := errs.Find[*classify.Failure](err)
	if ok && err == error(inner) {
		err = inner.Err
	}
	f.Err, f.Verdict, f.Last = err, v, at
	if f.First.IsZero() {
		f.First = at
	}
	if !ok || inner.Attempts <= 0 { // one that counted nothing is a mark: a retry must get on all the same
		f.Attempts++
		one := classify.Attempt{At: at, Class: v.Class, Error: boundedtext.Error(err, 256)}
		f.History = Latest(append(f.History, one))
		return
	}
	f.Attempts += inner.Attempts
	if !inner.First.IsZero() && inner.First.Before(f.First) {
		f.First = inner.First
	}
	f.History = Latest(append(f.History, inner.History...))
}

// Latest returns the latest attempts of a history, at most Kept, in the same array.
func Latest(history []classify.Attempt) []classify.Attempt {
	if len(history) > Kept {
		history = append(history[:0], history[len(history)-Kept:]...)
	}
	return history
}

// CanSucceed reports whether a later attempt can succeed after an error of this class.
func CanSucceed(class classify.Class) bool {
	return class == classify.ClassTransient || class == classify.ClassUnknown
}

// Reason returns the reason of v, or the one that stands for the class of an error without a reason of its own.
func Reason(v classify.Verdict) string {
	switch {
	case v.Reason != "":
		return v.Reason
	case v.Class == classify.ClassTransient:
		return classify.ReasonTransientMaxRetries
	case v.Class == classify.ClassPermanent:
		return classify.ReasonPermanent
	case v.Class == classify.ClassInvalid:
		return classify.ReasonInvalid
	case v.Class == classify.ClassUnknown:
		return classify.ReasonUnknownMaxRetries
	}
	return v.Class.String()
}

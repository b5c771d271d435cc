package classify_test

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Feature C2: every mark survives any number of layers, says its class, and changes neither the text nor the causes.
func TestMarksSurviveWrapping(t *testing.T) {
	for class, mark := range marks {
		for _, layers := range []int{0, 1, 2, 50} {
			err := wrap(mark(fmt.Errorf("cause: %w", io.EOF), classify.Reason("r")), layers)
			v := judge(err)
			testkit.Check(t, v.Class == class && v.Reason == "r", "%v under %d layers: %+v", class, layers, v)
			if plain := wrap(fmt.Errorf("cause: %w", io.EOF), layers); err.Error() != plain.Error() {
				t.Errorf("%v changed the text to %q", class, err)
			}
			testkit.Check(t, errors.Is(err, io.EOF), "%v hides its cause", class)
		}
	}
}

// Feature C2: a nil error stays nil, as an interface too, whatever the options.
func TestMarksOfNil(t *testing.T) {
	for class, mark := range marks {
		err := mark(nil, classify.Reason("r"), nil)
		testkit.Check(t, err == nil, "%v made %v of nil", class, err)
	}
}

// Feature C2: class, reason, description and retry-after are each that of the outermost mark which sets it.
func TestOutermostMarkWins(t *testing.T) {
	inner := classify.Permanent(io.EOF, classify.Reason("inner"), classify.Description("inner text"), classify.RetryAfter(time.Second))
	for name, c := range map[string]struct {
		err  error
		want classify.Verdict
	}{
		"class alone": {
			classify.Transient(wrap(inner, 2)),
			classify.Verdict{Class: classify.ClassTransient, Reason: "inner", Description: "inner text", RetryAfter: time.Second},
		},
		"reason alone": {
			classify.With(wrap(inner, 2), classify.Reason("outer")),
			classify.Verdict{Class: classify.ClassPermanent, Reason: "outer", Description: "inner text", RetryAfter: time.Second},
		},
		"each from another": {
			classify.With(wrap(classify.With(wrap(classify.Invalid(inner), 1), classify.Description("middle")), 1), classify.RetryAfter(time.Hour)),
			classify.Verdict{Class: classify.ClassInvalid, Reason: "inner", Description: "middle", RetryAfter: time.Hour},
		},
		"negative retry-after": {
			classify.With(inner, classify.RetryAfter(-time.Hour)),
			classify.Verdict{Class: classify.ClassPermanent, Reason: "inner", Description: "inner text", RetryAfter: time.Second},
		},
	} {
		got := judge(c.err)
		testkit.Check(t, got == c.want, "%s:\n got %+v\nwant %+v", name, got, c.want)
	}
}

// Feature C2: With leaves the class to marks inside, to rules, to knowledge, to the default.
func TestWithLeavesClass(t *testing.T) {
	c := newClassifier(t, classify.Config{
		Rules:   []classify.Rule{classify.Is(errSentinel, classify.Verdict{Class: classify.ClassInvalid})},
		Default: classify.ClassPermanent,
	})
	for want, err := range map[classify.Class]error{
		classify.ClassDiscard:   classify.Discard(errSentinel),
		classify.ClassInvalid:   errSentinel,
		classify.ClassTransient: errTimeout{},
		classify.ClassPermanent: errors.New("nobody knows"),
	} {
		v := c.Classify(wrap(classify.With(wrap(err, 2), classify.Reason("r")), 2))
		testkit.Check(t, v.Class == want && v.Reason == "r", "want %v, got %+v", want, v)
	}
}

// Feature C1: no mark can say that a message went away, nor a class that does not exist.
func TestMarkCannotAbort(t *testing.T) {
	for _, class := range []classify.Class{classify.ClassAborted, classify.ClassAborted + 1, 255} {
		option := func(v *classify.Verdict) { v.Class = class }
		for name, err := range map[string]error{
			"option":  classify.Permanent(errTimeout{}, option),
			"failure": &classify.Failure{Err: errTimeout{}, Verdict: classify.Verdict{Class: class}, Attempts: 1},
			"join":    errors.Join(errors.New("a"), classify.With(errTimeout{}, option)),
		} {
			v := judge(wrap(err, 1))
			testkit.Check(t, v.Class == classify.ClassTransient, "class %d by %s: %+v", class, name, v)
		}
	}
}

// Feature C6: a "not now" is transient, survives wrapping, and goes with the class: a mark further out that names
// another class takes it away.
func TestNotNow(t *testing.T) {
	var judge *classify.Classifier
	err := fmt.Errorf("a: %w", classify.NotNow(errors.New("locked"), classify.Reason("locked"), classify.RetryAfter(time.Second)))
	want := classify.Verdict{Class: classify.ClassTransient, Reason: "locked", RetryAfter: time.Second, NotNow: true}
	for _, err := range []error{err, classify.With(err, classify.Description("")), errors.Join(err, errors.New("unknown"))} {
		testkit.Equal(t, "", judge.Classify(err), want)
	}
	for _, err := range []error{classify.Permanent(err), classify.Transient(err), errors.Join(err, classify.Permanent(errors.New("b")))} {
		got := judge.Classify(err)
		testkit.Check(t, !got.NotNow, "%+v", got)
	}
	testkit.Check(t, classify.NotNow(nil) == nil, "a nil error is marked")
}

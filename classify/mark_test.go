package classify_test

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature C1: each class has a name of its own, which reads back as that class. Metadata is hostile: whatever is not
// exactly a name is unknown, and said to be.
func TestClassNames(t *testing.T) {
	var class classify.Class
	for i, name := range []string{"unknown", "transient", "permanent", "invalid", "discard", "aborted"} {
		err := class.UnmarshalText([]byte(name))
		testkit.Check(t, class == classify.Class(i) && class.String() == name && err == nil, "%q: %v", name, class)
	}
	testkit.Equal(t, "a class out of range", classify.Class(200).String(), "unknown")
	for _, text := range []string{"", "Permanent", " permanent", "permanent\x00", "2", "perm"} {
		class = classify.ClassUnknown
		err := class.UnmarshalText([]byte(text))
		testkit.Check(t, err != nil && class == classify.ClassUnknown, "%q: %v", text, class)
	}
}

// Feature C2: every mark survives any number of layers, says its class, and changes neither the text nor the causes. A
// nil error stays nil.
func TestMarksSurviveWrapping(t *testing.T) {
	for class, mark := range marks {
		for _, layers := range []int{0, 1, 50} {
			plain := fmt.Errorf("cause: %w", io.EOF)
			err := wrap(mark(plain, classify.Reason("r")), layers)
			v := judge(err)
			testkit.Check(t, v.Class == class && v.Reason == "r" && errors.Is(err, io.EOF) &&
				err.Error() == wrap(plain, layers).Error(), "%v under %d layers: %+v, %v", class, layers, v, err)
		}
		err := mark(nil, classify.Reason("r"), nil)
		testkit.Check(t, err == nil, "%v made %v of nil", class, err)
	}
	testkit.Check(t, classify.NotNow(nil) == nil && classify.Unavailable(nil) == nil, "a nil error is marked")
}

// Feature C2: class, reason, description and retry-after are each that of the outermost mark which sets it.
func TestOutermostMarkWins(t *testing.T) {
	type V = classify.Verdict
	const T, P, text = classify.ClassTransient, classify.ClassPermanent, "inner text"
	inner := classify.Permanent(io.EOF, classify.Reason("inner"), classify.Description(text),
		classify.RetryAfter(time.Second))
	middle := classify.With(wrap(classify.Invalid(inner), 1), classify.Description("middle"))
	for want, err := range map[V]error{
		{Class: T, Reason: "inner", Description: text, RetryAfter: time.Second}: classify.Transient(wrap(inner, 2)),
		{Class: P, Reason: "outer", Description: text, RetryAfter: time.Second}: classify.With(
			wrap(inner, 2), classify.Reason("outer")),
		{Class: classify.ClassInvalid, Reason: "inner", Description: "middle", RetryAfter: time.Hour}: classify.With(
			wrap(middle, 1), classify.RetryAfter(time.Hour)),
		{Class: P, Reason: "inner", Description: text, RetryAfter: time.Second}: classify.With(
			inner, classify.RetryAfter(-time.Hour)),
	} {
		testkit.Equal(t, "", judge(err), want)
	}
}

// Feature C1: no mark can say that a message went away, nor a class that does not exist.
func TestMarkCannotAbort(t *testing.T) {
	for _, class := range []classify.Class{classify.ClassAborted, classify.ClassAborted + 1, 255} {
		option := func(v *classify.Verdict) { v.Class = class }
		judges(t, transient, classify.Permanent(errTimeout{}, option), classify.With(errTimeout{}, option),
			&classify.Failure{Err: errTimeout{}, Verdict: classify.Verdict{Class: class}, Attempts: 1})
	}
}

// Feature C6: a "not now" is transient, survives wrapping, and goes with the class: a mark further out that names
// another class takes it away.
func TestNotNow(t *testing.T) {
	err := wrap(classify.NotNow(errors.New("locked"), classify.Reason("locked"), classify.RetryAfter(time.Second)), 1)
	want := classify.Verdict{Class: classify.ClassTransient, Reason: "locked", RetryAfter: time.Second, NotNow: true}
	judges(t, want, err, classify.With(err, classify.Description("")))
	for _, err := range []error{
		classify.Permanent(err), classify.Transient(err), errors.Join(err, classify.Permanent(errPlain)),
	} {
		testkit.Check(t, !judge(err).NotNow, "%+v", judge(err))
	}
}

// Feature C2: the header Retry-After has seconds or a date. What it cannot have says nothing.
func TestRetryAfterHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where the time is midnight of 2000-01-01 UTC
		for value, want := range map[string]time.Duration{
			"120": 2 * time.Minute, " 5 ": 5 * time.Second, "0": 0, "": 0, "-3": 0, "1.5": 0, "soon": 0,
			"Sat, 01 Jan 2000 00:01:00 GMT": time.Minute, "Fri, 31 Dec 1999 23:59:59 GMT": 0,
			"Saturday, 01-Jan-00 00:00:30 GMT": 30 * time.Second,
			"18446744073709551616":             1 << 31 * time.Second, "9223372036854775807": 1 << 31 * time.Second,
		} {
			v := judge(classify.Unavailable(errors.New("busy"), classify.RetryAfterHeader(value)))
			testkit.Equal(t, value, v.RetryAfter, want)
		}
	})
}

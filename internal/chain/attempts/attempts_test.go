package attempts_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain/attempts"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

var noon = time.Date(2024, 5, 6, 12, 0, 0, 0, time.UTC)

// Feature D1: attempts are counted, the first and the latest time kept, and the history holds the latest ten.
func TestFailureAdd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4*attempts.Kept).Draw(t, "attempts")
		var f classify.Failure
		for i := range n {
			attempts.Add(&f, fmt.Errorf("attempt %d", i), classify.Verdict{Class: classify.ClassTransient}, noon.Add(time.Duration(i)*time.Second))
		}
		last := noon.Add(time.Duration(n-1) * time.Second)
		testkit.Require(t, f.Attempts == n && f.First.Equal(noon) && f.Last.Equal(last) && len(f.History) == min(n, attempts.Kept),
			"%d attempts: %+v", n, f)
		for i, a := range f.History {
			number := n - len(f.History) + i
			want := classify.Attempt{At: noon.Add(time.Duration(number) * time.Second), Class: classify.ClassTransient, Error: fmt.Sprint("attempt ", number)}
			testkit.Require(t, a == want, "history[%d] is %+v, want %+v", i, a, want)
		}
	})
}

// Feature D1: the story of a retry further in is taken over, not counted as one attempt.
func TestFailureTakesOver(t *testing.T) {
	inner := &classify.Failure{
		Err: io.EOF, Attempts: 5, First: noon.Add(-time.Hour), Last: noon,
		History: make([]classify.Attempt, 30),
	}
	inner.History[29].Error = "latest"
	for name, err := range map[string]error{"bare": inner, "wrapped": fmt.Errorf("w: %w", inner), "marked": classify.Permanent(inner)} {
		var f classify.Failure
		attempts.Add(&f, errors.New("before"), classify.Verdict{}, noon.Add(-time.Minute))
		attempts.Add(&f, err, classify.Verdict{Class: classify.ClassPermanent}, noon.Add(time.Minute))
		testkit.Check(t, f.Attempts == 6 && f.First.Equal(inner.First) && f.Last.Equal(noon.Add(time.Minute)),
			"%s: %d attempts, first %v, last %v", name, f.Attempts, f.First, f.Last)
		testkit.Check(t, len(f.History) == attempts.Kept && f.History[attempts.Kept-1].Error == "latest",
			"%s: history %+v", name, f.History)
		testkit.Check(t, f.Verdict.Class == classify.ClassPermanent && errors.Is(&f, io.EOF), "%s: %+v", name, f)
		testkit.Check(t, name != "bare" || f.Err == io.EOF, "a failure of a failure: %v", f.Err)
		testkit.Check(t, len(inner.History) == 30 && inner.History[29].Error == "latest" && inner.Attempts == 5,
			"%s: the inner one changed: %+v", name, inner)
	}
}

// Promise P4: a Failure that a handler made without attempts counts as one, so that a retry comes to its end.
func TestFailureWithoutAttempts(t *testing.T) {
	for _, counted := range []int{0, -1, -1 << 40} {
		var f classify.Failure
		for n := 1; n <= 3; n++ {
			attempts.Add(&f, &classify.Failure{Err: io.EOF, Attempts: counted}, classify.Verdict{}, noon)
			testkit.Require(t, f.Attempts == n && len(f.History) == n && f.Err == io.EOF && f.History[n-1].Error == "EOF",
				"after %d with %d: %+v", n, counted, f)
		}
	}
}

// Feature D6: the texts of a Failure stay small and clean whatever the error's text is.
func TestFailureTextIsBounded(t *testing.T) {
	for name, err := range map[string]error{
		"5 MiB":        errors.New(strings.Repeat("x", 5<<20)),
		"5 MiB of 80":  errors.New(strings.Repeat("\x80", 5<<20)),
		"NUL":          errors.New("a\x00b"),
		"Error panics": evil{},
		"nil":          nil,
	} {
		var f classify.Failure
		attempts.Add(&f, err, classify.Verdict{Class: classify.ClassInvalid}, noon)
		text := f.Error()
		testkit.Check(t, strings.HasPrefix(text, "invalid after 1 attempt(s): ") && len(text) <= 5<<10,
			"%s: %.60q", name, text)
		kept := f.History[0].Error
		testkit.Check(t, len(kept) <= 256 && utf8.ValidString(text+kept) && !strings.Contains(text+kept, "\x00"),
			"%s: history has %d bytes, %.60q", name, len(kept), kept)
	}
}

type evil struct{}

func (evil) Error() string { panic("Error") }

// Feature C1: a message that is dead-lettered without a reason gets the one that stands for its class.
func TestReason(t *testing.T) {
	for class, want := range map[classify.Class]string{
		classify.ClassUnknown:   "unknown_max_retries",
		classify.ClassTransient: "transient_max_retries",
		classify.ClassPermanent: "permanent_error",
		classify.ClassInvalid:   "invalid_message",
		classify.ClassDiscard:   "discard",
		classify.ClassAborted:   "aborted",
		classify.Class(200):     "unknown",
	} {
		testkit.Equal(t, class.String(), attempts.Reason(classify.Verdict{Class: class}), want)
		testkit.Equal(t, "an application's", attempts.Reason(classify.Verdict{Class: class, Reason: "own"}), "own")
	}
}

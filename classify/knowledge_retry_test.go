package classify_test

import (
	"context"
	"errors"
	"testing"

	"github.com/cenkalti/backoff/v4"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Feature C4: what cenkalti/backoff calls permanent is permanent, whatever it wraps, and marks and rules outrank it.
func TestKnowledgeBackoff(t *testing.T) {
	for name, err := range map[string]error{
		"v4":            backoff.Permanent(errors.New("no such customer")),
		"v4, transient": backoff.Permanent(context.DeadlineExceeded),
	} {
		check(t, name, err, classify.ClassPermanent)
		v := judge(classify.Transient(err))
		testkit.Check(t, v.Class == classify.ClassTransient, "%s, marked transient: %v", name, v)
	}
	v := judge((*backoff.PermanentError)(nil))
	testkit.Check(t, v.Class == classify.ClassUnknown, "nil: %+v", v)
}

type permanentError struct{ error }

// Feature C4: errors of other packages with such names or texts are not theirs.
func TestKnowledgeBackoffOnly(t *testing.T) {
	check(t, "name", &permanentError{errors.New("mine")}, classify.ClassUnknown)
	check(t, "text", errors.New("the circuit breaker is open"), classify.ClassUnknown)
}

// Feature C4: an open breaker or a limit of failsafe-go passes with time.
func TestKnowledgeFailsafe(t *testing.T) {
	for _, text := range []string{"circuit breaker open", "bulkhead full", "rate limit exceeded", "timeout exceeded"} {
		check(t, text, errors.New(text), classify.ClassTransient)
	}
}

// Feature C2: a rule that gives ClassAborted is refused: no error has that class by itself.
func TestAbortedRuleIsRefused(t *testing.T) {
	boom, aborted := errors.New("boom"), classify.Verdict{Class: classify.ClassAborted}
	for name, rule := range map[string]classify.Rule{
		"Is":   classify.Is(boom, aborted),
		"As":   classify.As(func(*backoff.PermanentError) classify.Verdict { return aborted }),
		"own":  func(error) (classify.Verdict, bool) { return aborted, true },
		"none": classify.Is(boom, classify.Verdict{Class: 200}),
	} {
		if _, err := classify.New(classify.Config{Rules: []classify.Rule{classify.Is(boom, classify.Verdict{}), rule}}); err == nil {
			t.Errorf("%s: no error", name)
		} else {
			t.Log(err)
		}
	}
	fine := []classify.Rule{
		classify.Is(boom, classify.Verdict{Class: classify.ClassDiscard}),
		func(error) (classify.Verdict, bool) { panic("asked of what is no error of mine") },
		classify.As(func(err *backoff.PermanentError) (v classify.Verdict) {
			if err.Err != nil { // panics for the probe
				v = aborted
			}
			return v
		}),
	}
	told := ""
	c, err := classify.New(classify.Config{Rules: fine, OnRulePanic: func(text string, _ []byte) { told += text }})
	testkit.Require(t, err == nil && told == "", "%v %v", err, told)
	v := c.Classify(&backoff.PermanentError{Err: errors.New("x")})
	testkit.Check(t, v.Class == classify.ClassPermanent && told != "", "judged %+v, told %q", v, told)
	t.Log(told)
}

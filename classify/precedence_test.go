package classify_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature C3: marks before rules, rules before knowledge, knowledge before the default; and what each of them fills.
func TestPrecedence(t *testing.T) {
	type V = classify.Verdict
	const T, P, I, D = classify.ClassTransient, classify.ClassPermanent, classify.ClassInvalid, classify.ClassDiscard
	markR, f := classify.Reason("mark"), V{Class: P, Reason: "f"}
	aborted := V{Class: classify.ClassAborted, Reason: "gone"}
	byRule := V{Class: I, Reason: "rule", Description: "by rule", RetryAfter: time.Second}
	filled := byRule
	filled.Reason = "mark"
	panicked := &classify.PanicError{Value: classify.Discard(errSentinel)}
	byPanic := V{Class: P, Reason: classify.ReasonPanic}
	described := byPanic
	described.Description = "d"
	c := newClassifier(t, classify.Config{
		Rules: []classify.Rule{
			classify.Is(context.Canceled, byRule),
			classify.Is(errSentinel, V{Class: D, Reason: "sentinel"}),
			classify.As(func(errStatus) V { return V{Reason: "open"} }),
		},
		Default: T,
	})
	for name, row := range map[string]struct {
		err  error
		want V
	}{
		"mark over rule":              {classify.Permanent(context.Canceled), V{Class: P}},
		"mark inside over rule":       {errors.Join(context.Canceled, classify.Permanent(errPlain)), V{Class: P}},
		"mark over knowledge":         {classify.Permanent(context.DeadlineExceeded), V{Class: P}},
		"mark over a severer rule":    {classify.Transient(context.Canceled), V{Class: T}},
		"rule over knowledge":         {wrap(context.Canceled, 2), byRule},
		"rule fills the mark":         {classify.With(context.Canceled, markR), filled},
		"mark inside outlives a rule": {errors.Join(context.Canceled, classify.With(errPlain, markR)), filled},
		"open rule, then knowledge":   {errors.Join(errStatus{1}, errTimeout{}), V{Class: T, Reason: "open"}},
		"open rule over its reason":   {errors.Join(errStatus{1}, panicked), V{Class: P, Reason: "open"}},
		"rule over a severer branch":  {errors.Join(errSentinel, panicked), V{Class: D, Reason: "sentinel"}},
		"knowledge over default":      {panicked, byPanic}, // and a panic hides its value
		"knowledge fills the mark":    {classify.With(panicked, classify.Description("d")), described},
		"default":                     {errPlain, V{Class: T}},
		"default fills the mark":      {classify.With(errPlain, markR), V{Class: T, Reason: "mark"}},
		"a mark around a panic":       {classify.Discard(panicked), V{Class: D}},
		"a failure is a mark":         {wrap(&classify.Failure{Err: context.Canceled, Verdict: f}, 1), f},
		"a mark around a failure":     {classify.Transient(&classify.Failure{Verdict: f}), V{Class: T, Reason: "f"}},
		"an aborted failure is none": {
			&classify.Failure{Err: classify.With(errPlain, markR), Verdict: aborted}, V{Class: T, Reason: "mark"},
		},
	} {
		got := c.Classify(row.err)
		testkit.Check(t, got == row.want, "%s:\n got %+v\nwant %+v", name, got, row.want)
	}
	testkit.Equal(t, "nil, whatever the default says", c.Classify(nil), V{})
}

// severity is the order in which joined errors outweigh each other, weakest first.
var severity = []classify.Class{
	classify.ClassDiscard, classify.ClassUnknown, classify.ClassTransient, classify.ClassPermanent,
	classify.ClassInvalid,
}

// Feature C3: of joined marks the severest wins, whichever way they are joined and in whatever order, and it is heard
// whole: the reasons and waits of the others are not mixed in.
func TestJoinedMarks(t *testing.T) {
	for i, weak := range severity {
		for _, strong := range severity[i+1:] {
			a := wrap(marks[weak](errors.New("a"), classify.Reason("a"), classify.RetryAfter(time.Hour)), 2)
			b := wrap(marks[strong](errors.New("b"), classify.Reason("b")), 3)
			for how, err := range map[string]error{
				"Join":          errors.Join(a, b),
				"Join reversed": errors.Join(b, a),
				"multi-%w":      fmt.Errorf("%w: %w", a, b),
				"nested":        errors.Join(errors.Join(a), wrap(fmt.Errorf("%w, %w", b, a), 1)),
			} {
				got, around := judge(wrap(err, 2)), judge(classify.Discard(err))
				want := classify.Verdict{Class: strong, Reason: "b"}
				testkit.Check(t, got == want && around.Class == classify.ClassDiscard,
					"%s of %v and %v: %+v, and %+v with a mark around it", how, weak, strong, got, around)
			}
		}
	}
}

// Feature C3, promise P1: a failure joined to a discarded error is not dropped with it, though it has no mark.
func TestDiscardJoinedToFailure(t *testing.T) {
	discard := classify.Discard(errors.New("stale"), classify.Reason("stale"))
	for name, row := range map[string]struct {
		other error
		want  classify.Verdict
	}{
		"unknown":   {errors.New("rollback failed"), classify.Verdict{}},
		"transient": {context.DeadlineExceeded, transient},
		"reason":    {classify.With(errors.New("a"), classify.Reason("r")), classify.Verdict{Reason: "r"}},
		"discard":   {classify.Discard(errPlain), classify.Verdict{Class: classify.ClassDiscard, Reason: "stale"}},
	} {
		testkit.Equal(t, name, judge(errors.Join(discard, row.other)), row.want)
		got := judge(fmt.Errorf("%w: %w", row.other, discard))
		testkit.Check(t, got.Class == row.want.Class, "%s first: %+v, want %v", name, got, row.want.Class)
	}
	got := judge(branches{nil, discard, nil})
	testkit.Check(t, got.Class == classify.ClassDiscard, "a nil branch is a failure: %+v", got)
	testkit.Equal(t, "a join of one", judge(errors.Join(discard)).Class, classify.ClassDiscard)
}

// branches is a joined error that may hold nil, and is not comparable.
type branches []error

func (branches) Error() string     { return "branches" }
func (b branches) Unwrap() []error { return b }

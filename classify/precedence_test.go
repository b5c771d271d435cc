package classify_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Feature C3: marks before rules, rules before knowledge, knowledge before the default; and what each of them fills.
func TestPrecedence(t *testing.T) {
	type V = classify.Verdict
	const (
		U, T, P, I, D = classify.ClassUnknown, classify.ClassTransient, classify.ClassPermanent, classify.ClassInvalid, classify.ClassDiscard
	)
	plain := errors.New("plain")
	reason := func(r string) classify.Option { return classify.Reason(r) }
	panicked := &classify.PanicError{Value: classify.Discard(errSentinel)}
	c := newClassifier(t, classify.Config{
		Rules: []classify.Rule{
			classify.Is(context.Canceled, V{Class: I, Reason: "rule", Description: "by rule", RetryAfter: time.Second}),
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
		"mark inside over rule":       {wrap(errors.Join(context.Canceled, classify.Permanent(plain)), 3), V{Class: P}},
		"mark over knowledge":         {classify.Permanent(context.DeadlineExceeded), V{Class: P}},
		"mark over a severer rule":    {classify.Transient(context.Canceled), V{Class: T}},
		"rule over knowledge":         {wrap(context.Canceled, 2), V{I, "rule", "by rule", time.Second, false, false, false}},
		"rule fills the mark":         {classify.With(context.Canceled, reason("mark")), V{I, "mark", "by rule", time.Second, false, false, false}},
		"mark inside outlives a rule": {errors.Join(context.Canceled, classify.With(plain, reason("mark"))), V{I, "mark", "by rule", time.Second, false, false, false}},
		"mark of a class ends it":     {classify.Invalid(context.Canceled, classify.RetryAfter(time.Hour)), V{Class: I, RetryAfter: time.Hour}},
		"open rule, then knowledge":   {errors.Join(errStatus{1}, context.DeadlineExceeded), V{Class: T, Reason: "open"}},
		"open rule over its reason":   {errors.Join(errStatus{1}, &classify.PanicError{}), V{Class: P, Reason: "open"}},
		"rule over a severer branch":  {errors.Join(errSentinel, &classify.PanicError{}), V{Class: D, Reason: "sentinel"}},
		"knowledge over default":      {&classify.PanicError{}, V{Class: P, Reason: classify.ReasonPanic}},
		"knowledge fills the mark":    {classify.With(&classify.PanicError{}, classify.Description("d")), V{Class: P, Reason: classify.ReasonPanic, Description: "d"}},
		"default":                     {plain, V{Class: T}},
		"default fills the mark":      {classify.With(plain, reason("mark")), V{Class: T, Reason: "mark"}},
		"a panic hides its value":     {panicked, V{Class: P, Reason: classify.ReasonPanic}},
		"a mark around a panic":       {classify.Discard(panicked), V{Class: D}},
		"a failure is a mark":         {wrap(&classify.Failure{Err: context.Canceled, Verdict: V{Class: P, Reason: "f"}}, 1), V{Class: P, Reason: "f"}},
		"a mark around a failure":     {classify.Transient(&classify.Failure{Verdict: V{Class: P, Reason: "f"}}), V{Class: T, Reason: "f"}},
		"an aborted failure is none": {
			&classify.Failure{Err: classify.With(plain, reason("mark")), Verdict: V{Class: classify.ClassAborted, Reason: "gone"}}, V{Class: T, Reason: "mark"},
		},
	} {
		got := c.Classify(row.err)
		testkit.Check(t, got == row.want, "%s:\n got %+v\nwant %+v", name, got, row.want)
	}
}

// severity is the order in which joined errors outweigh each other, weakest first.
var severity = []classify.Class{
	classify.ClassDiscard, classify.ClassUnknown, classify.ClassTransient, classify.ClassPermanent, classify.ClassInvalid,
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
				if got := judge(wrap(err, 2)); got != (classify.Verdict{Class: strong, Reason: "b"}) {
					t.Errorf("%s of %v and %v: %+v", how, weak, strong, got)
				}
				if got := judge(marks[classify.ClassDiscard](err)); got.Class != classify.ClassDiscard {
					t.Errorf("a mark around %s of %v and %v: %+v", how, weak, strong, got)
				}
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
		"transient": {context.DeadlineExceeded, classify.Verdict{Class: classify.ClassTransient}},
		"panic":     {&classify.PanicError{}, classify.Verdict{Class: classify.ClassPermanent, Reason: classify.ReasonPanic}},
		"reason":    {classify.With(errors.New("a"), classify.Reason("r")), classify.Verdict{Reason: "r"}},
		"discard":   {classify.Discard(errors.New("b")), classify.Verdict{Class: classify.ClassDiscard, Reason: "stale"}},
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

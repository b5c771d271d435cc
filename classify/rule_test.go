package classify_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

var errSentinel = errors.New("sentinel")

type errStatus struct{ code int }

func (e errStatus) Error() string { return fmt.Sprint("status ", e.code) }

// errTimeout is known to be transient by its methods alone.
type errTimeout struct{}

func (errTimeout) Error() string   { return "timeout" }
func (errTimeout) Timeout() bool   { return true }
func (errTimeout) Temporary() bool { return true }

var statusRule = classify.As(func(errStatus) classify.Verdict { return permanent })

var permanent = classify.Verdict{Class: classify.ClassPermanent, Reason: "rule"}

// Feature C3: rules by sentinel, type, type with a verdict of its own and predicate, found bare, in causes and in
// joins.
func TestRules(t *testing.T) {
	status := func(e errStatus) (v classify.Verdict) {
		if e.code != 404 {
			v = classify.Verdict{Class: classify.ClassTransient, RetryAfter: time.Duration(e.code) * time.Second}
		}
		return v
	}
	type timeout interface {
		error
		Timeout() bool
	}
	own := func(answers bool) classify.Rule {
		return func(err error) (classify.Verdict, bool) {
			return permanent, answers && strings.Contains(err.Error(), "sent")
		}
	}
	for name, c := range map[string]struct {
		rule classify.Rule
		err  error
		want classify.Verdict
	}{
		"Is":           {classify.Is(errSentinel, permanent), errSentinel, permanent},
		"Is another":   {classify.Is(errSentinel, permanent), errors.New("sentinel"), unknown},
		"As":           {classify.As(status), errStatus{5}, status(errStatus{5})},
		"As declines":  {classify.As(status), errStatus{404}, unknown},
		"As another":   {classify.As(func(*errStatus) classify.Verdict { return permanent }), errStatus{500}, unknown},
		"As interface": {classify.As(func(timeout) classify.Verdict { return permanent }), errTimeout{}, permanent},
		"own":          {own(true), errSentinel, permanent},
		"own declines": {own(false), errSentinel, unknown},
	} {
		classifier := newClassifier(t, classify.Config{Rules: []classify.Rule{c.rule}})
		for place, err := range map[string]error{
			"bare":    c.err,
			"cause":   wrap(c.err, 20),
			"multi":   fmt.Errorf("%w and %w", errPlain, c.err),
			"in join": wrap(errors.Join(errPlain, errors.Join(wrap(c.err, 3)), errPlain), 2),
		} {
			got := classifier.Classify(err)
			testkit.Check(t, got == c.want, "%s, %s: got %+v, want %+v", name, place, got, c.want)
		}
	}
}

// Feature C3: the first rule that answers is the only one heard; one that leaves the class open leaves it to knowledge.
func TestFirstRuleWins(t *testing.T) {
	rule := func(reason string, class classify.Class) classify.Rule {
		return classify.Is(errSentinel, classify.Verdict{Class: class, Reason: reason})
	}
	asked := 0
	count := func(error) (classify.Verdict, bool) { asked++; return unknown, false }
	c := newClassifier(t, classify.Config{Rules: []classify.Rule{
		count, rule("first", classify.ClassUnknown), rule("second", classify.ClassPermanent), count,
	}})
	asked = 0 // New asks each rule for a class that it cannot give
	got := c.Classify(errors.Join(errSentinel, errTimeout{}))
	testkit.Require(t, got == (classify.Verdict{Class: classify.ClassTransient, Reason: "first"}) && asked == 1,
		"got %+v, and the other rules were asked %d times", got, asked)
}

// Conventions, features C2, C7: a configuration that cannot be meant is an error that names the field: no error is
// aborted by itself, what is unavailable passes with time, and a size does not.
func TestNewRefuses(t *testing.T) {
	rules := func(v classify.Verdict) classify.Config {
		return classify.Config{Rules: []classify.Rule{statusRule, classify.Is(errSentinel, v)}}
	}
	aborted := classify.Verdict{Class: classify.ClassAborted}
	for _, c := range []struct {
		want   string
		config classify.Config
	}{
		{"Rules[1] is nil", classify.Config{Rules: []classify.Rule{statusRule, nil}}},
		{`Default cannot be "aborted"`, classify.Config{Default: classify.ClassAborted}},
		{`Default cannot be "unknown" (77)`, classify.Config{Default: 77}},
		{`Default cannot be "discard"`, classify.Config{Default: classify.ClassDiscard}},
		{"Rules[1]: it gives the class aborted", rules(aborted)},
		{"Rules[1]: it gives the class 200", rules(classify.Verdict{Class: 200})},
		{"with Unavailable", rules(classify.Verdict{Class: classify.ClassDiscard, Unavailable: true})},
		{"with TooLarge", rules(classify.Verdict{Class: classify.ClassTransient, TooLarge: true})},
		{"Rules[0]", classify.Config{Rules: []classify.Rule{
			classify.As(func(*backoff.PermanentError) classify.Verdict { return aborted })}}},
		{"Rules[0]", classify.Config{Rules: []classify.Rule{
			func(error) (classify.Verdict, bool) { return aborted, true }}}},
	} {
		got, err := classify.New(c.config)
		testkit.Says(t, err, c.want)
		testkit.Check(t, got == nil, "%s: a classifier", c.want)
	}
}

// Features C2, C7: what a rule cannot give, and gives when New cannot know, is taken for what it can mean, and told of.
func TestRuleGivesWhatItCannot(t *testing.T) {
	notified := ""
	c := newClassifier(t, classify.Config{Rules: []classify.Rule{
		classify.Is(errSentinel, classify.Verdict{Unavailable: true, Reason: "maintenance"}), // alone it means transient
		func(error) (classify.Verdict, bool) { panic("asked of what is no error of mine") },
		classify.As(func(err *backoff.PermanentError) classify.Verdict {
			if err.Err == nil { // panics for the probe
				return unknown
			}
			return classify.Verdict{Class: classify.ClassAborted}
		}),
		func(err error) (classify.Verdict, bool) {
			return classify.Verdict{Class: classify.ClassPermanent, Unavailable: true}, errors.As(err, new(errStatus))
		},
	}, OnRulePanic: func(text string, _ []byte) { notified += text }})
	testkit.Equal(t, "", c.Classify(wrap(errSentinel, 2)),
		classify.Verdict{Class: classify.ClassTransient, Unavailable: true, Reason: "maintenance"})
	testkit.Equal(t, "told", notified, "")
	testkit.Equal(t, "", c.Classify(&backoff.PermanentError{Err: errPlain}), lasting)
	testkit.Check(t, strings.Contains(notified, "Rules[2]: it gives the class aborted"), "told %q", notified)
	testkit.Equal(t, "", c.Classify(errStatus{503}), lasting)
}

package classify_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
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
	for name, c := range map[string]struct {
		rule classify.Rule
		err  error
		want classify.Verdict
	}{
		"Is":           {classify.Is(errSentinel, permanent), errSentinel, permanent},
		"Is another":   {classify.Is(errSentinel, permanent), errors.New("sentinel"), classify.Verdict{}},
		"As":           {classify.As(status), errStatus{5}, classify.Verdict{Class: classify.ClassTransient, RetryAfter: 5 * time.Second}},
		"As declines":  {classify.As(status), errStatus{404}, classify.Verdict{}},
		"As another":   {classify.As(func(*errStatus) classify.Verdict { return permanent }), errStatus{500}, classify.Verdict{}},
		"As interface": {classify.As(func(timeout) classify.Verdict { return permanent }), errTimeout{}, permanent},
		"own":          {func(err error) (classify.Verdict, bool) { return permanent, strings.Contains(err.Error(), "sent") }, errSentinel, permanent},
		"own declines": {func(error) (classify.Verdict, bool) { return permanent, false }, errSentinel, classify.Verdict{}},
	} {
		classifier := newClassifier(t, classify.Config{Rules: []classify.Rule{c.rule}})
		for place, err := range map[string]error{
			"bare":    c.err,
			"cause":   wrap(c.err, 20),
			"join":    errors.Join(errors.New("a"), wrap(c.err, 3), errors.New("b")),
			"multi":   fmt.Errorf("%w and %w", errors.New("a"), c.err),
			"in join": wrap(errors.Join(errors.New("a"), errors.Join(c.err)), 2),
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
	count := func(error) (classify.Verdict, bool) { asked++; return classify.Verdict{}, false }
	c := newClassifier(t, classify.Config{Rules: []classify.Rule{
		count, rule("first", classify.ClassUnknown), rule("second", classify.ClassPermanent), count,
	}})
	asked = 0 // New asks each rule for a class that it cannot give
	got := c.Classify(errors.Join(errSentinel, errTimeout{}))
	testkit.Require(t, got == (classify.Verdict{Class: classify.ClassTransient, Reason: "first"}) && asked == 1,
		"got %+v, and the other rules were asked %d times", got, asked)
}

// Conventions: a configuration that cannot be meant is an error that names the field.
func TestNewRefuses(t *testing.T) {
	for want, config := range map[string]classify.Config{
		"Rules[1] is nil":                  {Rules: []classify.Rule{classify.Is(errSentinel, permanent), nil}},
		`Default cannot be "aborted"`:      {Default: classify.ClassAborted},
		`Default cannot be "unknown" (77)`: {Default: 77},
		`Default cannot be "discard"`:      {Default: classify.ClassDiscard},
	} {
		if c, err := classify.New(config); c != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v, %v", want, c, err)
		}
	}
}

package classify_test

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/errs"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

type (
	evilError  struct{}
	evilIs     struct{ error }
	evilAs     struct{ error }
	evilUnwrap struct{ error }
	evilJoin   struct{ error }
	evilState  struct{ error }
	evilNet    struct{ error }
	boxed      struct{ v any } // comparable to the compiler, not when v holds a slice
)

func (evilError) Error() string    { panic("Error") }
func (evilIs) Is(error) bool       { panic("Is") }
func (evilAs) As(any) bool         { panic("As") }
func (evilUnwrap) Unwrap() error   { panic("Unwrap") }
func (evilJoin) Unwrap() []error   { panic("Unwrap") }
func (evilState) SQLState() string { panic("SQLState") }
func (evilNet) Timeout() bool      { panic("Timeout") }
func (evilNet) Temporary() bool    { return true }
func (boxed) Error() string        { return "boxed" }

var evils = []error{
	evilError{}, evilIs{errSentinel}, evilAs{errSentinel}, evilUnwrap{errSentinel}, evilJoin{errSentinel},
	evilState{errSentinel}, evilNet{errSentinel}, boxed{[]int{1}}, branches{errSentinel},
	(*classify.Failure)(nil), (*net.OpError)(nil), (*url.Error)(nil), &classify.Failure{}, &net.OpError{}, &url.Error{},
}

// Feature C3: methods of an error that panic silence that error alone: what is said around it and beside it counts.
func TestErrorMethodsPanic(t *testing.T) {
	notified := false
	c := newClassifier(t, classify.Config{Rules: []classify.Rule{
		classify.Is(boxed{[]int{2}}, permanent), statusRule, classify.Is(errors.New("x"), permanent),
		func(err error) (classify.Verdict, bool) { return permanent, err.Error() == "" },
	}, OnRulePanic: func(string, []byte) { notified = true }})
	for _, evil := range evils {
		name := fmt.Sprintf("%T", evil)
		c.Classify(evil)
		for want, mark := range marks {
			if want == classify.ClassUnknown {
				continue
			}
			around, beside := c.Classify(wrapped{mark(wrapped{evil})}), c.Classify(errors.Join(evil, mark(errSentinel)))
			testkit.Check(t, around.Class == want, "%v around %s: %+v", want, name, around)
			testkit.Check(t, beside.Class == want || want == classify.ClassDiscard, "%v beside %s: %+v", want, name,
				beside)
		}
		v := judge(errors.Join(evil, &classify.PanicError{}))
		testkit.Check(t, v.Class == classify.ClassPermanent, "knowledge beside %s: %+v", name, v)
	}
	testkit.Check(t, notified, "no hook was called")
}

// wrapped does not ask for the text of what it wraps, as fmt would.
type wrapped struct{ error }

func (wrapped) Error() string   { return "wrapped" }
func (w wrapped) Unwrap() error { return w.error }

// Conventions: a rule that panics is contained and told of, and the next rule is asked.
func TestRulePanics(t *testing.T) {
	var texts []string
	c := newClassifier(t, classify.Config{
		Rules: []classify.Rule{
			func(error) (classify.Verdict, bool) { panic("first") },
			func(error) (classify.Verdict, bool) { panic(evilError{}) },
			classify.Is(errSentinel, permanent),
		},
		OnRulePanic: func(text string, stack []byte) {
			testkit.Check(t, strings.Contains(string(stack), "TestRulePanics"), "the rule's stack is %s", stack)
			texts = append(texts, text)
			panic("the hook too")
		},
	})
	testkit.Equal(t, "", c.Classify(errSentinel), permanent)
	testkit.Check(t, len(texts) == 2 && strings.Contains(texts[0], "first") && strings.Contains(texts[1], "evilError"),
		"told %q", texts)
}

// Promise P4: an error that wraps itself, or more than can be searched, is judged in time, by the marks around it.
func TestErrorsWithoutEnd(t *testing.T) {
	op, get := &net.OpError{Op: "dial"}, &url.Error{Op: "Get"}
	op.Err, get.Err = op, get
	double := errSentinel
	for range 64 {
		double = branches{double, double}
	}
	panicking := &panicLink{}
	panicking.next = panicking
	notified := 0
	c := newClassifier(t, classify.Config{Rules: []classify.Rule{classify.Is(errors.New("x"), permanent), statusRule},
		OnRulePanic: func(string, []byte) { notified++ }})
	for name, err := range map[string]error{
		"loop": loop(), "op": op, "url": get, "doubled": double, "panics": panicking,
	} {
		testkit.Within(t, name, func() {
			testkit.Equal(t, name, c.Classify(classify.Permanent(err)).Class, classify.ClassPermanent)
			want := classify.ClassUnknown
			if name == "op" {
				want = classify.ClassTransient
			}
			testkit.Equal(t, name+" without a mark", c.Classify(wrapped{err}).Class, want)
			_, ok := errs.Find[*classify.Failure](wrapped{err})
			around := &classify.Failure{Err: err, Attempts: 3}
			found, _ := errs.Find[*classify.Failure](wrapped{around})
			testkit.Check(t, !ok && found == around, "%s has a failure, or that around it was not found", name)
		})
	}
	testkit.Check(t, notified != 0 && notified <= 100, "told %d times of one error's panics", notified)
}

// panicLink panics when it is judged, and goes on without end.
type panicLink struct{ link }

func (*panicLink) SQLState() string { panic("SQLState") }

package classify_test

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/causes"
)

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
	told := 0
	rules := []classify.Rule{classify.Is(errors.New("x"), permanent), statusRule}
	c := newClassifier(t, classify.Config{Rules: rules, OnRulePanic: func(string, []byte) { told++ }})
	for name, err := range map[string]error{"loop": loop(), "op": op, "url": get, "doubled": double, "panics": panicking} {
		within(t, 20*time.Second, func() {
			if v := c.Classify(classify.Permanent(err)); v.Class != classify.ClassPermanent {
				t.Errorf("%s: %+v", name, v)
			}
			want := classify.ClassUnknown
			if name == "op" {
				want = classify.ClassTransient
			}
			if v := c.Classify(wrapped{err}); v.Class != want {
				t.Errorf("%s without a mark: %+v", name, v)
			}
			if f, ok := causes.Find[*classify.Failure](wrapped{err}); ok {
				t.Errorf("%s has a failure: %v", name, f.Attempts)
			}
			want1 := &classify.Failure{Err: err, Attempts: 3}
			if f, _ := causes.Find[*classify.Failure](wrapped{want1}); f != want1 {
				t.Errorf("the failure around %s was not found", name)
			}
		})
	}
	if told == 0 || told > 100 {
		t.Errorf("told %d times of one error's panics", told)
	}
}

// panicLink panics when it is judged, and goes on without end.
type panicLink struct{ link }

func (*panicLink) SQLState() string { panic("SQLState") }

// Feature C2: a mark is found below 10,000 layers, and among 10,000 joined errors.
func TestManyErrors(t *testing.T) {
	batch := make([]error, 10_000)
	for i := range batch {
		batch[i] = fmt.Errorf("row %d: %w", i, classify.Transient(errSentinel))
	}
	batch[len(batch)-1] = classify.Invalid(errSentinel, classify.Reason("last"))
	nested := classify.Invalid(errSentinel, classify.Reason("last"))
	for range 10_000 {
		nested = branches{errTimeout{}, nested}
	}
	want := classify.Verdict{Class: classify.ClassInvalid, Reason: "last"}
	for name, err := range map[string]error{
		"deep":   long(classify.Invalid(errSentinel, classify.Reason("last")), 10_000),
		"wide":   wrap(branches(batch), 2),
		"nested": nested,
	} {
		within(t, 20*time.Second, func() {
			if v := judge(err); v != want {
				t.Errorf("%s: %+v", name, v)
			}
		})
	}
	rule := newClassifier(t, classify.Config{Rules: []classify.Rule{classify.Is(errSentinel, permanent)}})
	if v := rule.Classify(long(errSentinel, 10_000)); v != permanent {
		t.Errorf("a rule below 10,000 layers: %+v", v)
	}
}

package classify_test

import (
	"errors"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/causes"
	"github.com/watermill-spillway/spillway/internal/testkit"
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
			testkit.Equal(t, name, c.Classify(classify.Permanent(err)).Class, classify.ClassPermanent)
			want := classify.ClassUnknown
			if name == "op" {
				want = classify.ClassTransient
			}
			v := c.Classify(wrapped{err})
			testkit.Check(t, v.Class == want, "%s without a mark: %+v", name, v)
			if f, ok := causes.Find[*classify.Failure](wrapped{err}); ok {
				t.Errorf("%s has a failure: %v", name, f.Attempts)
			}
			want1 := &classify.Failure{Err: err, Attempts: 3}
			f, _ := causes.Find[*classify.Failure](wrapped{want1})
			testkit.Check(t, f == want1, "the failure around %s was not found", name)
		})
	}
	testkit.Check(t, told != 0 && told <= 100, "told %d times of one error's panics", told)
}

// panicLink panics when it is judged, and goes on without end.
type panicLink struct{ link }

func (*panicLink) SQLState() string { panic("SQLState") }

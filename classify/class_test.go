package classify_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/classify"
)

var classes = map[classify.Class]string{
	classify.ClassUnknown:   "unknown",
	classify.ClassTransient: "transient",
	classify.ClassPermanent: "permanent",
	classify.ClassInvalid:   "invalid",
	classify.ClassDiscard:   "discard",
	classify.ClassAborted:   "aborted",
}

// Feature C1: each class has a name of its own, which stands in metadata, and reads back as that class.
func TestClassNames(t *testing.T) {
	for class, name := range classes {
		if class.String() != name {
			t.Errorf("class %d reads %q, want %q", class, class, name)
		}
		if back, ok := classify.ParseClass(name); back != class || !ok {
			t.Errorf("%q reads back as %v, %v", name, back, ok)
		}
	}
	if got := classify.Class(200).String(); got != "unknown" {
		t.Errorf("a class out of range reads %q", got)
	}
}

// Feature C1: metadata is hostile: whatever is not exactly a name is unknown, and said to be.
func TestParseClassHostile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "Permanent", " permanent", "permanent\x00", "2"})).Draw(t, "s")
		class, ok := classify.ParseClass(s)
		if ok != (class.String() == s) || !ok && class != classify.ClassUnknown {
			t.Fatalf("%q is %v, %v", s, class, ok)
		}
	})
}

// Feature C1: a message set aside without a reason gets the one that stands for its class.
func TestReasonOrDefault(t *testing.T) {
	for class, want := range map[classify.Class]string{
		classify.ClassUnknown:   "unknown_max_retries",
		classify.ClassTransient: "transient_max_retries",
		classify.ClassPermanent: "permanent_error",
		classify.ClassInvalid:   "invalid_message",
		classify.ClassDiscard:   "discard",
		classify.ClassAborted:   "aborted",
		classify.Class(200):     "unknown",
	} {
		if got := (classify.Verdict{Class: class}).ReasonOrDefault(); got != want {
			t.Errorf("%v: %q, want %q", class, got, want)
		}
		if got := (classify.Verdict{Class: class, Reason: "own"}).ReasonOrDefault(); got != "own" {
			t.Errorf("%v: an application's reason became %q", class, got)
		}
	}
}

// Feature C5: a nil error has no verdict, whatever the default and the rules say.
func TestNilError(t *testing.T) {
	c := newClassifier(t, classify.Config{
		Default: classify.ClassPermanent,
		Rules:   []classify.Rule{classify.When(func(error) bool { return true }, classify.Verdict{Class: classify.ClassInvalid})},
	})
	if v := c.Classify(nil); v != (classify.Verdict{}) {
		t.Fatalf("nil is %+v", v)
	}
}

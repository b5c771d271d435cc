package classify_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
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
		testkit.Check(t, class.String() == name, "class %d reads %q, want %q", class, class, name)
		var back classify.Class
		err := back.UnmarshalText([]byte(name))
		testkit.Check(t, back == class && err == nil, "%q reads back as %v, %v", name, back, err)
	}
	testkit.Equal(t, "a class out of range", classify.Class(200).String(), "unknown")
}

// Feature C1: metadata is hostile: whatever is not exactly a name is unknown, and said to be.
func TestClassNamesHostile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "Permanent", " permanent", "permanent\x00", "2"})).Draw(t, "s")
		var class classify.Class
		err := class.UnmarshalText([]byte(s))
		testkit.Require(t, (err == nil) == (class.String() == s) && (err == nil || class == classify.ClassUnknown),
			"%q is %v, %v", s, class, err)
	})
}

// Feature C5: a nil error has no verdict, whatever the default and the rules say.
func TestNilError(t *testing.T) {
	c := newClassifier(t, classify.Config{
		Default: classify.ClassPermanent,
		Rules:   []classify.Rule{func(error) (classify.Verdict, bool) { return classify.Verdict{Class: classify.ClassInvalid}, true }},
	})
	testkit.Equal(t, "nil", c.Classify(nil), (classify.Verdict{}))
}

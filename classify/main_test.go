package classify_test

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// judge is the verdict by marks and built-in knowledge alone.
func judge(err error) classify.Verdict { return (*classify.Classifier)(nil).Classify(err) }

func newClassifier(t testing.TB, config classify.Config) *classify.Classifier {
	t.Helper()
	return testkit.Must(classify.New(config))
}

// wrap puts n layers of %w around err.
func wrap(err error, n int) error {
	for range n {
		err = fmt.Errorf("w: %w", err)
	}
	return err
}

type link struct{ next error }

func (*link) Error() string   { return "link" }
func (l *link) Unwrap() error { return l.next }

// loop wraps itself.
func loop() error {
	l := &link{}
	l.next = &link{&link{l}}
	return l
}

var marks = map[classify.Class]func(error, ...classify.Option) error{
	classify.ClassUnknown:   classify.With,
	classify.ClassTransient: classify.Transient,
	classify.ClassPermanent: classify.Permanent,
	classify.ClassInvalid:   classify.Invalid,
	classify.ClassDiscard:   classify.Discard,
}

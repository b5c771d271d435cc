package classify_test

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

type (
	quiet      struct{}
	evilString struct{}
	evilTwice  struct{}
)

func (quiet) String() string      { return "quiet" }
func (evilString) String() string { panic("String") }
func (evilTwice) String() string  { panic(evilTwice{}) } // fmt gives up on this one and panics itself

func caught(f func()) (err *classify.PanicError) {
	defer func() { err = safecall.Panicked(recover()) }()
	f()
	return nil
}

// Feature C4: whatever is thrown, the panic has a short clean text, a stack and the class permanent.
func TestPanicError(t *testing.T) {
	for name, row := range map[string]struct {
		value any
		text  string
	}{
		"nil":              {nil, "panic: panic called with nil argument"},
		"text":             {"boom", "panic: boom"},
		"number":           {42, "panic: 42"},
		"error":            {io.EOF, "panic: EOF"},
		"marked error":     {classify.Discard(io.EOF), "panic: EOF"},
		"custom":           {struct{ Code int }{7}, "panic: {Code:7}"},
		"Stringer":         {quiet{}, "panic: quiet"},
		"Stringer panics":  {evilString{}, "panic: "},
		"Stringer twice":   {evilTwice{}, "panic: classify_test.evilTwice (its String method panicked)"},
		"Error panics":     {evilError{}, "panic: classify_test.evilError (its Error method panicked)"},
		"5 MiB":            {strings.Repeat("x", 5<<20), "panic: xxx"},
		"5 MiB error":      {errors.New(strings.Repeat("\xff", 5<<20)), "panic: \uFFFD"},
		"not text":         {"a\x00b\xff", "panic: a\uFFFDb\uFFFD"},
		"nil pointer":      {(*link)(nil), "panic: link"},
		"nil with a value": {(*errStatus)(nil), "panic: *classify_test.errStatus (its Error method panicked)"},
	} {
		err := caught(func() { panic(row.value) })
		if text := err.Error(); !strings.HasPrefix(text, row.text) || len(text) > 5<<10 || !utf8.ValidString(text) {
			t.Errorf("%s: %d bytes, %.80q", name, len(text), text)
		}
		testkit.Check(t, strings.Contains(string(err.Stack), "TestPanicError"), "%s: the stack is %s", name, err.Stack)
		judges(t, classify.Verdict{Class: classify.ClassPermanent, Reason: classify.ReasonPanic}, err)
	}
	var none *runtime.PanicNilError
	err := caught(func() { panic(nil) })
	testkit.Check(t, errors.As(err.Value.(error), &none), "panic(nil) has the value %T", err.Value)
	testkit.Equal(t, "the zero PanicError", (&classify.PanicError{}).Error(), "panic: <nil>")
}

// Feature C4: a panic does not unwrap to its value; a rule for its type may judge it.
func TestPanicHidesValue(t *testing.T) {
	err := wrap(caught(func() { panic(fmt.Errorf("thrown: %w", classify.Transient(errSentinel))) }), 2)
	testkit.Check(t, !errors.Is(err, errSentinel), "the sentinel shows through the panic")
	c := newClassifier(t, classify.Config{Rules: []classify.Rule{
		classify.Is(errSentinel, classify.Verdict{Class: classify.ClassDiscard}),
		classify.As(func(*classify.PanicError) classify.Verdict { return permanent }),
	}})
	testkit.Equal(t, "", c.Classify(err), permanent)
}

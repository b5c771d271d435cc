package errs

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
)

type loop struct{ joined bool }

func (l *loop) Error() string { return "loop" }

func (l *loop) Unwrap() []error {
	if l.joined {
		return []error{l, l}
	}
	panic("no causes")
}

// Feature C3: each error comes before its causes, joined errors in their order, and nil is no error.
func TestAll(t *testing.T) {
	left, right := fmt.Errorf("left: %w", io.EOF), errors.New("right")
	joined := errors.Join(left, right)
	outer := fmt.Errorf("outer: %w", joined)
	if got, want := slices.Collect(All(outer)), []error{outer, joined, left, io.EOF, right}; !slices.Equal(got, want) {
		t.Errorf("all are %q, want %q", got, want)
	}
	if got, want := slices.Collect(First(outer)), []error{outer, joined, left, io.EOF}; !slices.Equal(got, want) {
		t.Errorf("the first are %q, want %q", got, want)
	}
	if got := slices.Collect(All(nil)); len(got) != 0 {
		t.Errorf("nil has %q", got)
	}
	for first := range All(outer) {
		if first != outer {
			t.Errorf("the walk goes on after %q", first)
		}
		break
	}
}

// Feature C3: an error that wraps itself is walked up to a bound, and one whose Unwrap panics has no causes.
func TestHostile(t *testing.T) {
	if n := len(slices.Collect(All(&loop{joined: true}))); n != Most {
		t.Errorf("%d errors of an endless one", n)
	}
	if n := len(slices.Collect(First(&loop{joined: true}))); n != Most {
		t.Errorf("%d first errors of an endless one", n)
	}
	after := errors.Join(&loop{}, io.EOF)
	if n := len(slices.Collect(All(after))); n != 3 {
		t.Errorf("%d errors beside one that panics", n)
	}
}

// Feature C3: the outermost error of a type is found, unless it is a nil pointer.
func TestFind(t *testing.T) {
	inner, outer := &loop{}, &loop{}
	if got, ok := Find[*loop](errors.Join((*loop)(nil), fmt.Errorf("x: %w", outer), inner)); !ok || got != outer {
		t.Errorf("found %p, %t", got, ok)
	}
	if got, ok := Find[*loop](io.EOF); ok || got != nil {
		t.Errorf("found %v in another error", got)
	}
}

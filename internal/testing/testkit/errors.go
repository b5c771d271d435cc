package testkit

import (
	"errors"
	"strings"
	"testing"
)

// Err returns the error of a call alone.
func Err[T any](_ T, err error) error { return err }

// Is fails the test unless the error is the target.
func Is(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("the error is %v, want %v", err, target)
	}
}

// Says fails the test unless there is an error that says text.
func Says(t testing.TB, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("the error is %v, want one that says %q", err, text)
	}
}

// Returns fails the test unless a call returns a value, as in testkit.Returns(t, 3)(store.Purge(ctx, filter, act)).
func Returns[T comparable](t testing.TB, want T) func(got T, err error) {
	return func(got T, err error) {
		t.Helper()
		if err != nil || got != want {
			t.Errorf("got %+v and %v, want %+v", got, err, want)
		}
	}
}

// Equal fails the test unless got is want. What names got, and may be empty.
func Equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got == want {
		return
	}
	if what != "" {
		what += ": "
	}
	t.Errorf("%sgot %+v, want %+v", what, got, want)
}

// Check fails the test unless what should be is so. The message says what is instead.
func Check(t interface {
	Helper()
	Errorf(format string, args ...any)
}, is bool, format string, args ...any) {
	t.Helper()
	if !is {
		t.Errorf(format, args...)
	}
}

// Require ends the test unless what should be is so. The message says what is instead.
func Require(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, is bool, format string, args ...any) {
	t.Helper()
	if !is {
		t.Fatalf(format, args...)
	}
}

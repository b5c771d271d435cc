package testkit

import (
	"testing"
	"time"
)

// Patience is how long a test waits for what must happen. A disk may stand still for many seconds; only a hang takes
// longer.
const Patience = time.Minute

// Eventually polls condition until it holds, and ends the test if it does not hold within Patience. What says what is
// waited for; state, if it is given, returns what to print beside it.
func Eventually(t testing.TB, what string, condition func() bool, state ...func() string) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			var more string
			for _, s := range state {
				more += ": " + s()
			}
			t.Fatalf("not within %s: %s%s", Patience, what, more)
		}
	}
}

// Within calls f and ends the test if f does not return within Patience.
func Within(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	Receive(t, what, done)
}

// Receive returns the next value of a channel, or its zero value if it is closed, and ends the test if neither comes
// within Patience.
func Receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(Patience):
		t.Fatalf("not within %s: %s", Patience, what)
		panic("unreachable")
	}
}

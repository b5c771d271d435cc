// Package testkit holds what tests of several packages need: conditions that are polled, contexts that end on demand,
// random sources that can be repeated, a logger that keeps its lines, and a router that runs for a test. Package
// databases, beside it, gives a test a database of its own, package wire stands between it and its driver, and package
// child is a process that a test kills.
//
// A test judges what happened, never how long it took: it waits for a condition with [Eventually], whose deadline is so
// long that only a hang exceeds it. A test that must not see something happen gives it a moment to happen; on a slow
// machine such a test shows less, and never fails. Time itself is tested in a bubble of package testing/synctest.
package testkit

import (
	"context"
	"encoding/base64"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
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

// Must returns what set-up made, as in testkit.Must(poison.NewQueue(store, config)). It panics with the error if there
// is one: a test that cannot be set up says nothing, and the stack names its line.
func Must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

// NoError ends the test, or the draw of a property, if there is an error.
func NoError(t interface {
	Helper()
	Fatal(args ...any)
}, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

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

// SeedVariable names the environment variable whose value Random takes for its seed.
const SeedVariable = "SPILLWAY_SEED"

// Random returns a random source whose seed is in the test's log. SPILLWAY_SEED repeats it.
func Random(t testing.TB) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv(SeedVariable); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatalf("%s is %q: give a number", SeedVariable, given)
		}
	}
	t.Logf("%s=%d", SeedVariable, seed)
	return rand.New(rand.NewPCG(seed, seed))
}

// ChaosVariable names the environment variable that multiplies how long campaigns of random events last.
const ChaosVariable = "SPILLWAY_CHAOS"

// Campaign returns n times the value of SPILLWAY_CHAOS, which is 1 by default.
func Campaign(t testing.TB, n int) int {
	t.Helper()
	given := os.Getenv(ChaosVariable)
	if given == "" {
		return n
	}
	times, err := strconv.Atoi(given)
	if err != nil || times < 1 {
		t.Fatalf("%s is %q: give a number of at least 1", ChaosVariable, given)
	}
	return n * times
}

// InBubble lets rapid run inside of synctest.Test, where asking for the test's deadline panics.
type InBubble struct{ testing.TB }

// Expiring returns a context that ends with context.DeadlineExceeded when expire is called. So a test decides in what
// state a deadline finds the code, where a time-out of some milliseconds leaves that to the machine.
func Expiring(parent context.Context) (ctx context.Context, expire func()) {
	e := &expiring{Context: parent, done: make(chan struct{})}
	return e, sync.OnceFunc(func() { close(e.done) })
}

type expiring struct {
	context.Context
	done chan struct{}
}

func (e *expiring) Done() <-chan struct{} { return e.done }

func (e *expiring) Err() error {
	select {
	case <-e.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// Secret is the secret of a key of Keyring: 32 times the last letter of its id.
func Secret(id string) []byte { return []byte(strings.Repeat(id[len(id)-1:], 32)) }

// Keyring is the text of keys for seal.ParseKeyring. The first is the current one.
func Keyring(ids ...string) string {
	var text strings.Builder
	for _, id := range ids {
		text.WriteString(id + " " + base64.StdEncoding.EncodeToString(Secret(id)) + "\n")
	}
	return text.String()
}

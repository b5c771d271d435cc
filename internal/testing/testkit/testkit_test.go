package testkit_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a test that notes how it ended.
type recorder struct {
	testing.TB
	said string
}

func (*recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) { r.said = fmt.Sprintf(format, args...) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.said = format
	panic(r)
}

func TestEventually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, n := time.Now(), 0
		testkit.Eventually(t, "the third time", func() bool { n++; return n == 3 })
		r := &recorder{TB: t}
		func() {
			defer func() { _ = recover() }()
			testkit.Eventually(r, "never", func() bool { return false }, func() string { return "state" })
		}()
		if r.said == "" || time.Since(begun) < testkit.Patience {
			t.Errorf("%q after %s", r.said, time.Since(begun))
		}
	})
}

func TestErrors(t *testing.T) {
	no, other := errors.New("no"), errors.New("other")
	if testkit.Err(7, no) != no {
		t.Error("not the error of the call")
	}
	for fails, check := range map[string]func(testing.TB){
		"":                              func(t testing.TB) { testkit.Is(t, no, no); testkit.Says(t, no, "n"); testkit.Returns(t, 7)(7, nil) },
		"the error is no, want other":   func(t testing.TB) { testkit.Is(t, no, other) },
		`error is no, want one that`:    func(t testing.TB) { testkit.Says(t, no, "yes") },
		`error is <nil>, want one that`: func(t testing.TB) { testkit.Says(t, nil, "yes") },
		"got 7 and no, want 7":          func(t testing.TB) { testkit.Returns(t, 7)(7, no) },
		"got 7 and <nil>, want 8":       func(t testing.TB) { testkit.Returns(t, 8)(7, nil) },
		"keys: got 7, want 8":           func(t testing.TB) { testkit.Equal(t, "keys", 7, 8); testkit.Equal(t, "", 7, 7) },
		"7 keys":                        func(t testing.TB) { testkit.Check(t, false, "%d keys", 7) },
		"eight keys": func(t testing.TB) {
			defer func() { _ = recover() }()
			testkit.Check(t, true, "no")
			testkit.Require(t, false, "eight keys")
		},
	} {
		r := &recorder{}
		if check(r); !strings.Contains(r.said, fails) || (r.said == "") != (fails == "") {
			t.Errorf("it said %q, want %q", r.said, fails)
		}
	}
}

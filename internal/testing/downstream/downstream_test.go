package downstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func begin(t *testing.T, timeout time.Duration) (*Server, *Client) {
	t.Helper()
	s := testkit.Must(New())
	t.Cleanup(s.Close)
	c := NewClient(s.Addr(), timeout)
	t.Cleanup(c.Close)
	return s, c
}

func set(t *testing.T, s *Server, mode Mode) {
	t.Helper()
	testkit.NoError(t, s.Set(mode))
}

func TestModes(t *testing.T) {
	s, c := begin(t, time.Minute)
	s.RetryAfter(7 * time.Second)
	call := func() error { return c.Call(t.Context(), "id") }
	if err := call(); err != nil {
		t.Error("up:", err)
	}
	set(t, s, Unavailable)
	_ = call() // ends with its connection
	if err := call(); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error("away:", err)
	}
	set(t, s, Busy)
	if v := (*classify.Classifier)(nil).Classify(call()); v.RetryAfter != 7*time.Second || !v.Unavailable {
		t.Errorf("busy: %+v", v)
	}
	set(t, s, Failing)
	if err := call(); err == nil || !strings.Contains(err.Error(), "500") {
		t.Error("failing:", err)
	}
	set(t, s, Up)
	if err := call(); err != nil {
		t.Error("up again:", err)
	}
	if n := len(s.Calls()); n != 4 || s.ByID()["id"] != 2 {
		t.Errorf("%d calls, %v", n, s.ByID())
	}
}

func TestHanging(t *testing.T) {
	s, hasty := begin(t, 10*time.Millisecond)
	set(t, s, Hanging)
	if err := hasty.Call(t.Context(), "hasty"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	patient := NewClient(s.Addr(), time.Minute)
	defer patient.Close()
	ended := make(chan error, 1)
	go func() { ended <- patient.Call(t.Context(), "patient") }()
	testkit.Eventually(t, "the call hangs", func() bool { return s.Count() == 2 })
	set(t, s, Up)
	if err := <-ended; err == nil {
		t.Error("a call that hung has succeeded")
	}
}

func TestChoose(t *testing.T) {
	s, c := begin(t, time.Minute)
	testkit.NoError(t, s.Choose(func(id string) Mode {
		if id == "odd" {
			return Failing
		}
		return Up
	}))
	if c.Call(t.Context(), "odd") == nil || c.Call(t.Context(), "even") != nil {
		t.Error("not as chosen:", s.Calls())
	}
}

func TestFlap(t *testing.T) {
	s, c := begin(t, time.Minute)
	testkit.NoError(t, s.Flap(Unavailable, time.Millisecond, time.Millisecond))
	seen := map[bool]int{}
	testkit.Eventually(t, "it answers and refuses", func() bool {
		seen[c.Call(t.Context(), "id") == nil]++
		return seen[true] > 2 && seen[false] > 2
	}, func() string { return fmt.Sprint(seen) })
	set(t, s, Up)
	testkit.Eventually(t, "it answers after flapping", func() bool { return c.Call(t.Context(), "id") == nil })
}

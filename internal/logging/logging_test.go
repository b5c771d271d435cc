package logging_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Feature O5: a late logger drops its lines until it is bound, and so does what With made of it; the first logger
// stays.
func TestLate(t *testing.T) {
	late, first, second := logging.NewLate(), watermill.NewCaptureLogger(), watermill.NewCaptureLogger()
	child := late.With(watermill.LogFields{"a": 1, "b": 1}).With(watermill.LogFields{"b": 2})
	lines := func() {
		late.Error("error", errors.New("boom"), nil)
		child.Info("info", watermill.LogFields{"c": 3})
		child.Debug("debug", nil)
		child.Trace("trace", nil)
	}
	lines()
	testkit.Check(t, logging.IsSilent(late) && logging.IsSilent(child), "not silent before it is bound")
	late.Bind(nil)
	late.Bind(first)
	late.Bind(second)
	lines()
	if logging.IsSilent(late) || logging.IsSilent(child) || !logging.IsSilent(watermill.NopLogger{}) || !logging.IsSilent(nil) {
		t.Error("silent after it is bound")
	}
	want := watermill.CapturedMessage{Level: watermill.InfoLogLevel, Msg: "info", Fields: watermill.LogFields{"a": 1, "b": 2, "c": 3}}
	if !first.Has(want) || len(first.Captured()) != 4 || len(second.Captured()) != 0 {
		t.Errorf("first %v, second %v", first.Captured(), second.Captured())
	}
	nop := logging.NewLate()
	nop.Bind(watermill.NopLogger{})
	testkit.Check(t, logging.IsSilent(nop), "a late logger that is bound to none is not silent")
}

// Feature O5: what a line tells of an error is bounded.
func TestCause(t *testing.T) {
	if text := logging.Cause(strings.Repeat("x", 1<<20) + "\x00").Error(); len(text) > 1<<10 || !strings.Contains(text, "cut") {
		t.Errorf("%d bytes: %q", len(text), text)
	}
}

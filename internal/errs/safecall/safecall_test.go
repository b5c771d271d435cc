package safecall_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type evilError struct{}

func (evilError) Error() string { panic("Error") }

// Conventions: a panic becomes an error with the name, the value and the stack, and is permanent.
func TestCallPanics(t *testing.T) {
	for name, value := range map[string]any{"text": "boom", "error": io.EOF, "nil": nil, "hostile": evilError{}, "marked": classify.Discard(io.EOF)} {
		err := safecall.Call("poison.OnDeadLetter", func() error { panic(value) })
		var panicked *classify.PanicError
		if !errors.As(err, &panicked) || !strings.HasPrefix(err.Error(), "poison.OnDeadLetter: panic: ") {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !strings.Contains(string(panicked.Stack), "TestCallPanics") {
			t.Errorf("%s: the stack is %s", name, panicked.Stack)
		}
		if errors.Is(err, io.EOF) {
			t.Errorf("%s: the value shows through", name)
		}
		if v := (*classify.Classifier)(nil).Classify(err); v.Class != classify.ClassPermanent || v.Reason != classify.ReasonPanic {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// Promise P1: a publisher that panics with nil, where the process runs with the old meaning of that, did not succeed.
func TestCallPanicsWithNil(t *testing.T) {
	t.Setenv("GODEBUG", "panicnil=1")
	if err := safecall.Call("publisher", func() error { panic(nil) }); err == nil {
		t.Fatal("a panic reads as success")
	}
}

// Conventions: runtime.Goexit is not held up; decision 11 settles it elsewhere.
func TestCallGoexit(t *testing.T) {
	after := make(chan bool, 1)
	go func() {
		returned := false
		defer func() { after <- returned }()
		_ = safecall.Call("f", func() error { runtime.Goexit(); return nil })
		returned = true
	}()
	if <-after {
		t.Fatal("the goroutine went on")
	}
}

// Conventions: a hook that panics is logged with its name, and one that does not is not.
func TestHook(t *testing.T) {
	logger := watermill.NewCaptureLogger()
	ran := false
	safecall.Hook(logger, "poison.OnDiscard", func() { ran = true })
	if got := logger.Captured()[watermill.ErrorLogLevel]; !ran || len(got) != 0 {
		t.Fatalf("ran %v, logged %+v", ran, got)
	}
	safecall.Hook(logger, "poison.OnDiscard", func() { panic("boom") })
	got := logger.Captured()[watermill.ErrorLogLevel]
	if len(got) != 1 || got[0].Fields["hook"] != "poison.OnDiscard" || got[0].Err == nil || got[0].Err.Error() != "poison.OnDiscard: panic: boom" {
		t.Fatalf("logged %+v", got)
	}
}

// Conventions: a nil pointer in an interface is nil, and a zero value is not.
func TestIsNil(t *testing.T) {
	var (
		pointer *int
		hook    func()
		logger  watermill.LoggerAdapter
		ctx     context.Context
		metrics map[string]int
		typed   error = (*classify.PanicError)(nil)
	)
	for i, v := range []any{nil, pointer, hook, logger, ctx, metrics, typed, []int(nil), (chan int)(nil)} {
		if !safecall.IsNil(v) {
			t.Errorf("%d: %T is nil", i, v)
		}
	}
	for i, v := range []any{0, "", false, struct{}{}, [0]int{}, new(int), []int{}, map[string]int{}, func() {}, watermill.NopLogger{}, io.EOF} {
		if safecall.IsNil(v) {
			t.Errorf("%d: %T is not nil", i, v)
		}
	}
}

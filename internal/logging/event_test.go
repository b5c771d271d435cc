package logging_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

var (
	outputRefused  = logging.ErrorEvent("output_refused", "refused")
	deadLettered   = logging.ErrorEvent("dead_lettered", "dead-lettered")
	handlerRetried = logging.InfoEvent("handler_retried", "retried")
	letterPlain    = logging.ErrorEvent("letter_plain", "plain").Always()
)

func fail(logger watermill.LoggerAdapter, handler string, n int) {
	outputRefused.Write(logger, fmt.Errorf("failure %d", n), logging.Fields{logging.Topic: "orders", logging.Handler: handler})
}

// Feature O5: a storm of 10,000 failures in one place writes few lines, whose counts add up to 10,000. The first ten
// come at once, and the count when the storm ends.
func TestStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &testkit.Log{}
		logger := logging.Wrap(kept, nil)
		for n := range 10_000 { // ten minutes and 40 s
			fail(logger, "billing", n)
			testkit.Check(t, n != 0 || len(kept.Errors()) == 1, "the first line does not come at once")
			time.Sleep(64 * time.Millisecond)
		}
		fail(logger, "shipping", 0)
		testkit.Check(t, kept.Has("", logging.Handler, "shipping"), "another place waits for the storm")
		time.Sleep(2 * time.Minute)
		lines := kept.Errors()
		testkit.Equal(t, "the lines stand for", testkit.StandsFor(lines), 10_001)
		testkit.Check(t, len(lines) == 10+11+1, "%d lines", len(lines))
		example := lines[10]
		if example.Fields[logging.Handler] != "billing" || example.Fields[logging.Topic] != "orders" || example.Err.Error() != "failure 10" ||
			example.Fields[logging.EventName] != "output_refused" {
			t.Errorf("the count has the example %v", example)
		}
		fail(logger, "billing", 0)
		if got := kept.Errors(); len(got) != len(lines)+1 || got[len(lines)].Fields[logging.Repeated] != nil {
			t.Error("after the storm the first line does not come at once")
		}
	})
}

// Feature O5: Flush writes the counts, for the end of a router.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &testkit.Log{}
		logger := logging.Wrap(kept, nil)
		for n := range 100 {
			fail(logger.With(logging.Fields{"of": "with"}), "billing", n)
		}
		logging.Flush(logger)
		logging.Flush(logger)
		if lines := kept.Errors(); len(lines) != 11 || testkit.StandsFor(lines) != 100 || lines[10].Fields["of"] != "with" {
			t.Errorf("%d lines stand for %d", len(lines), testkit.StandsFor(lines))
		}
	})
}

// Feature O5: an attacker's names make no end of places. What is beyond the bound is counted for the event.
func TestPlacesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &testkit.Log{}
		logger := logging.Wrap(kept, nil)
		const most, all = 500, 20_000
		for n := range all {
			fail(logger, fmt.Sprint("handler", n), n)
		}
		testkit.Equal(t, "lines at once", len(kept.Errors()), most+10)
		time.Sleep(2 * time.Minute)
		if lines := kept.Errors(); len(lines) != most+11 || testkit.StandsFor(lines) != all {
			t.Errorf("%d lines stand for %d", len(lines), testkit.StandsFor(lines))
		}
	})
}

// Feature O5: an event whose story is nowhere else is always written.
func TestAlwaysWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &testkit.Log{}
		logger := logging.Wrap(kept, nil)
		for range 1000 {
			letterPlain.Write(logger, nil, nil)
		}
		testkit.Equal(t, "lines", len(kept.Errors()), 1000)
	})
}

// Feature O5: what comes with a message cannot make two lines of one, nor a long one, and errors are masked before they
// are cut. A mask that panics withholds the text.
func TestHostileValues(t *testing.T) {
	kept := &testkit.Log{}
	logger := logging.Wrap(kept, func(text string) string { return strings.ReplaceAll(text, "4242", "****") })
	id := "m-1\nlevel=ERROR msg=\"forged\"\r\x1b[2J\u2028\u202e\xff" + strings.Repeat("x", 1000)
	err := errors.New("line\nline\x1b[31m card 4242" + strings.Repeat("x", 10<<10))
	deadLettered.Write(logger, err, logging.Fields{logging.MessageID: id, logging.Wait: time.Second})
	handlerRetried.Write(logger, err, logging.Fields{logging.MessageID: id, logging.Wait: time.Second})
	if lines := kept.Errors(); len(lines) != 1 || !strings.HasPrefix(lines[0].Err.Error(), `line\nline\x1b[31m card ****`) || len(lines[0].Err.Error()) > 1<<10 {
		t.Errorf("error lines %v", lines)
	}
	testkit.Check(t, errors.Is(kept.Errors()[0].Err, err), "a logger does not find the error that it knows")
	lines := kept.Lines(watermill.InfoLogLevel, "")
	if len(lines) != 1 || lines[0].Err != nil || lines[0].Fields[logging.Error] != kept.Errors()[0].Err.Error() {
		t.Fatalf("info lines %v", lines)
	}
	got, _ := lines[0].Fields[logging.MessageID].(string)
	testkit.Check(t, len(got) <= 200 && !strings.ContainsAny(got,
		"\n\r\x1b\u2028\u202e") && utf8.ValidString(got) && strings.HasPrefix(got, `m-1\nlevel=`), "id %q", got)
	testkit.Equal(t, "wait", lines[0].Fields[logging.Wait], any("1s"))
	deadLettered.Write(logging.Wrap(kept, func(string) string { panic("mask") }), errors.New("secret"), nil)
	testkit.Equal(t, "withheld", kept.Errors()[1].Err.Error(), "[withheld: the mask panicked]")
}

// bad is a logger that does with each line what do does.
type bad struct {
	watermill.NopLogger
	do func()
}

func (b bad) Error(string, error, watermill.LogFields) { b.do() }
func (b bad) Info(string, watermill.LogFields)         { b.do() }

// Feature O5: a logger that is nil, panics, or ends its goroutine fails no message.
func TestBadLoggers(t *testing.T) {
	var nothing *testkit.Log
	for name, logger := range map[string]watermill.LoggerAdapter{
		"nil": nil, "nil pointer": nothing, "panics": bad{do: func() { panic("logger") }}, "panics with nil": bad{do: func() { panic(nil) }},
		"ends its goroutine": bad{do: runtime.Goexit},
	} {
		t.Run(name, func(t *testing.T) {
			logger := logging.Wrap(logger, nil)
			for n := range 20 {
				fail(logger, "billing", n)
				logger.Info("a line of the caller's own", nil)
			}
			logging.Flush(logger)
		})
	}
}

// Feature O5: a logger that hangs delays one message by seconds, and the others not at all. Its lines wait; those that
// have no room are counted, and their count is written when the logger goes on.
func TestLoggerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept, block := &testkit.Log{}, make(chan struct{})
		logger := logging.Wrap(slow{kept, block}, nil)
		began := time.Now()
		const all = 5000
		for n := range all {
			fail(logger, fmt.Sprint("handler", n%100), n)
		}
		took := time.Since(began)
		testkit.Check(t, took <= 10*time.Second, "messages waited %s", took)
		time.Sleep(10 * time.Minute)
		testkit.Check(t, len(kept.Errors()) == 0, "the logger does not hang")
		close(block)
		time.Sleep(10 * time.Minute)
		if lines := kept.Errors(); testkit.StandsFor(lines) != all || len(lines) > 1200 {
			t.Errorf("%d lines stand for %d", len(lines), testkit.StandsFor(lines))
		}
	})
}

// slow passes lines on once it may.
type slow struct {
	*testkit.Log
	block chan struct{}
}

func (s slow) Error(text string, err error, fields watermill.LogFields) {
	<-s.block
	s.Log.Error(text, err, fields)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Feature O5: a late logger drops its lines until it is bound, and so does what With made of it; the first logger
// stays.
func TestLate(t *testing.T) {
	late, first, second := logging.NewLate(strings.Clone), watermill.NewCaptureLogger(), watermill.NewCaptureLogger()
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
	nop := logging.NewLate(strings.Clone)
	nop.Bind(watermill.NopLogger{})
	testkit.Check(t, logging.IsSilent(nop), "a late logger that is bound to none is not silent")
}

// Feature O5: what a line tells of an error is bounded.
func TestCause(t *testing.T) {
	if text := logging.Cause(strings.Repeat("x", 1<<20) + "\x00").Error(); len(text) > 1<<10 || !strings.Contains(text, "cut") {
		t.Errorf("%d bytes: %q", len(text), text)
	}
}

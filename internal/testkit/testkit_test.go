package testkit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testkit"
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

func TestReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed, never := make(chan int), make(chan int)
		close(closed)
		if got := testkit.Receive(t, "closed", closed); got != 0 {
			t.Error(got)
		}
		testkit.Within(t, "a second", func() { time.Sleep(time.Second) })
		r := &recorder{TB: t}
		func() {
			defer func() { _ = recover() }()
			testkit.Receive(r, "never", never)
		}()
		if r.said == "" {
			t.Error("it did not end")
		}
	})
}

func TestExpiring(t *testing.T) {
	ctx, expire := testkit.Expiring(context.WithValue(t.Context(), recorder{}, "value"))
	derived, cancel := context.WithCancel(ctx)
	defer cancel()
	if ctx.Err() != nil || derived.Value(recorder{}) != "value" {
		t.Error(ctx.Err())
	}
	expire()
	expire()
	<-derived.Done()
	if !errors.Is(derived.Err(), context.DeadlineExceeded) || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Error(ctx.Err(), derived.Err())
	}
}

func TestLog(t *testing.T) {
	var log testkit.Log
	with := log.With(watermill.LogFields{"a": 1}).With(watermill.LogFields{"b": 2})
	boom := errors.New("boom")
	with.Error("it fails", boom, watermill.LogFields{"c": 3})
	log.Info("it goes on", nil)
	with.Debug("debug", nil)
	with.Trace("trace", nil)
	if e := log.Errors(); len(e) != 1 || e[0].Err != boom || len(e[0].Fields) != 3 || len(log.Lines(watermill.InfoLogLevel, "goes")) != 1 || !log.Has("fails", "a", 1) || log.Has("fails", "a", 2) {
		t.Errorf("%v", e)
	}
}

func TestRandom(t *testing.T) {
	t.Setenv(testkit.SeedVariable, "7")
	if a, b := testkit.Random(t).Uint64(), testkit.Random(t).Uint64(); a != b {
		t.Error("a seed is not repeated")
	}
}

func TestRunRouter(t *testing.T) {
	pubsub := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	handled := make(chan string, 1)
	stop := testkit.RunRouter(t, nil, func(r *message.Router) {
		r.AddConsumerHandler("h", "topic", pubsub, func(msg *message.Message) error { handled <- msg.UUID; return nil })
	})
	if err := pubsub.Publish("topic", message.NewMessage("1", nil)); err != nil {
		t.Fatal(err)
	}
	if got := testkit.Receive(t, "handled", handled); got != "1" {
		t.Error(got)
	}
	stop()
	stop()
}

func TestMust(t *testing.T) {
	testkit.NoError(t, nil)
	if testkit.Must(7, nil) != 7 {
		t.Error("not what was made")
	}
	defer func() {
		if recover() == nil {
			t.Error("an error is passed over")
		}
	}()
	testkit.Must(0, errors.New("no"))
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

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
)

// follower is an observe.Tracer that writes down what it is called with. Its operations are numbered from 1.
type follower struct {
	mu    sync.Mutex
	begun int
	lines []string
	open  map[string]bool
}

type followed struct{}

func (f *follower) Begin(ctx context.Context, op observe.Operation) context.Context {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun++
	trace := fmt.Sprint("op", f.begun)
	if f.open == nil {
		f.open = map[string]bool{}
	}
	f.open[trace] = true
	f.lines = append(f.lines, fmt.Sprintf("%s begins kind %d of %s/%s to %q number %d parent %q earlier %q", trace, op.Kind, op.Topic, op.Handler, op.To, op.Number, op.Parent, op.Earlier))
	return context.WithValue(ctx, followed{}, trace)
}

func (f *follower) End(ctx context.Context, _ observe.Operation, end observe.Ending) {
	f.mu.Lock()
	defer f.mu.Unlock()
	trace := ctx.Value(followed{}).(string)
	delete(f.open, trace)
	line := trace + " ends"
	if end.Err != nil {
		line += fmt.Sprintf(" as %s: %s", end.Verdict.Class, end.Text)
	}
	f.lines = append(f.lines, line)
}

func (f *follower) Trace(ctx context.Context) string {
	trace, _ := ctx.Value(followed{}).(string)
	return trace
}

func (f *follower) history() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.lines)
}

func traced(t *testing.T, config spillway.Config) (*spillway.Channel, *testkit.Kept) {
	t.Helper()
	dead := &testkit.Kept{}
	config.Publisher = dead
	config.Retry.Backoff = middleware.Backoff{Initial: time.Microsecond}
	channel := testkit.Must(spillway.New(t.Context(), config))
	return channel, dead
}

func order(t *testing.T, metadata message.Metadata) *message.Message {
	msg := message.NewMessageWithContext(chain.Within(t.Context(), "billing", "orders"), "7", []byte("acme"))
	msg.Metadata = metadata
	return msg
}

// Feature O2: each attempt is an operation, and so is the publishing of the letter, which carries its trace.
func TestTracer(t *testing.T) {
	f := &follower{}
	channel, dead := traced(t, spillway.Config{
		Tracer: f, Retry: middleware.RetryConfig{Attempts: 2},
		Privacy: masking(t, "sesame", "[masked]"),
	})
	var seen []any
	msg := order(t, nil)
	before := msg.Context()
	testkit.Must(channel.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		seen = append(seen, msg.Context().Value(followed{}))
		msg.SetContext(context.WithValue(msg.Context(), followed{}, "the handler's own"))
		return nil, errors.New("open sesame")
	})(msg))
	want := []string{
		`op1 begins kind 0 of orders/billing to "" number 1 parent "" earlier ""`, `op1 ends as unknown: open [masked]`,
		`op2 begins kind 0 of orders/billing to "" number 2 parent "" earlier "op1"`, `op2 ends as unknown: open [masked]`,
		`op3 begins kind 2 of orders/billing to "orders.dlq" number 1 parent "op2" earlier ""`, `op3 ends`,
	}
	got := f.history()
	testkit.Check(t, slices.Equal(got, want), "got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	testkit.Check(t, slices.Equal(seen, []any{"op1", "op2"}) && msg.Context() == before,
		"the handler saw %v, and the context is restored: %t", seen, msg.Context() == before)
	letter, err := poison.Decode(dead.Taken()[0])
	testkit.Check(t, err == nil && letter.Trace == "op3" && dead.Taken()[0].Context().Value(followed{}) == "op3",
		"the letter has the trace %q, error %v", letter.Trace, err)
	_, left := letter.Original.Metadata[poison.KeyEarlierTrace]
	testkit.Check(t, !left, "the trace is left on the original")
	back := letter.Redriven("ops", "1", time.Now())
	if got := back.Metadata[poison.KeyEarlierTrace]; got != "op3" {
		t.Errorf("without a Tracer, the redriven message has the trace %q of its letter", got)
	}
}

// Feature O2: an attempt that ends its goroutine, and one whose message went away, end their operation too.
func TestTracerEndsEachOperation(t *testing.T) {
	f := &follower{}
	channel, dead := traced(t, spillway.Config{Tracer: f})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = channel.Middleware(func(*message.Message) ([]*message.Message, error) { runtime.Goexit(); return nil, nil })(order(t, nil))
	}()
	<-done
	ctx, cancel := context.WithCancel(t.Context())
	msg := order(t, nil)
	msg.SetContext(ctx)
	_, err := channel.Middleware(func(*message.Message) ([]*message.Message, error) { cancel(); return nil, ctx.Err() })(msg)
	testkit.Check(t, err != nil && len(dead.Taken()) == 1, "error %v, %d letters", err, len(dead.Taken()))
	history := strings.Join(f.history(), "\n")
	testkit.Check(t, len(f.open) == 0 && strings.Contains(history,
		"op1 ends as permanent") && strings.Contains(history, "op3 ends as aborted"), "open: %v\n%s", f.open, history)
}

// Feature O2: no operation is open while the breaker holds a message.
func TestTracerWaitsForTheGuard(t *testing.T) {
	f := &follower{}
	channel, _ := traced(t, spillway.Config{Tracer: f, Breaker: &breaker.Config{}})
	channel.Breaker().Open("billing", "by hand")
	done := make(chan error, 1)
	go func() {
		_, err := channel.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, nil })(order(t, nil))
		done <- err
	}()
	testkit.Eventually(t, "the breaker holds the message", func() bool {
		for _, s := range channel.Health().Handlers {
			if s.Waiting == 1 {
				return true
			}
		}
		return false
	})
	testkit.Equal(t, "while the message is held", len(f.history()), 0)
	channel.Breaker().Close("billing")
	err := <-done
	testkit.Check(t, err == nil && len(f.history()) == 2, "error %v, %q", err, f.history())
}

// panicking is an observe.Tracer that panics.
type panicking struct{}

func (panicking) Begin(context.Context, observe.Operation) context.Context { panic("Begin") }
func (panicking) End(context.Context, observe.Operation, observe.Ending)   { panic("End") }
func (panicking) Trace(context.Context) string                             { panic("Trace") }

// Feature O2: a Tracer that panics changes nothing.
func TestTracerPanics(t *testing.T) {
	channel, dead := traced(t, spillway.Config{Tracer: panicking{}, Retry: middleware.RetryConfig{Attempts: 3}})
	calls := 0
	for _, fails := range []bool{false, true} {
		testkit.Must(channel.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			calls++
			testkit.Check(t, msg.Context() != nil, "no context")
			if fails {
				return nil, classify.Transient(errors.New("boom"))
			}
			return nil, nil
		})(order(t, message.Metadata{"a": "b"})))
	}
	testkit.Check(t, calls == 4 && len(dead.Taken()) == 1 && dead.Taken()[0].Metadata[poison.KeyEarlierTrace] == "",
		"%d calls, %d letters", calls, len(dead.Taken()))
}

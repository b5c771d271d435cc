package notify_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/observe/notify"
	"github.com/watermill-spillway/spillway/poison"
)

// bubble is a Notifier without a router and a database, in a bubble whose clock stands still while it works.
type bubble struct {
	*notify.Notifier
	hooks   poison.Hooks
	breaker func(breaker.Change)
	channel *spillway.Channel
	log     *testkit.Log
}

func inBubble(t *testing.T, with notify.Config, bounds ...func(*notify.Notifier)) *bubble {
	t.Helper()
	b := &bubble{log: &testkit.Log{}}
	with.Logger = b.log
	n := testkit.Must(notify.New(with))
	for _, bound := range bounds {
		bound(n)
	}
	config := spillway.Config{Publisher: nowhere{}, Breaker: &breaker.Config{}}
	testkit.NoError(t, n.Observe(&config))
	b.channel = testkit.Must(spillway.New(t.Context(), config))
	testkit.NoError(t, n.Watch(t.Context(), b.channel))
	b.Notifier, b.hooks, b.breaker = n, config.Queue.Hooks, config.Breaker.Hooks.OnChange
	n.Start()
	return b
}

func (b *bubble) place(causes ...string) {
	for _, cause := range causes {
		b.hooks.OnDeadLetter(context.Background(), letter(cause))
	}
}

// Feature O4: an open breaker is a notice, and its end one when it was closed for a minute, however often it opens.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var in inbox
		b := inBubble(t, notify.Config{Sinks: []notify.Sink{in.sink}, Shared: observe.Shared{Privacy: stars(t)}})
		for range 30 {
			b.breaker(breaker.Change{Handler: "billing", Scope: "acme", From: circuit.Closed, To: circuit.Open, Reason: breaker.ReasonUnavailable, Cause: errors.New("refused hunter2")})
			b.breaker(breaker.Change{Handler: "billing", Scope: "acme", From: circuit.Open, To: circuit.HalfOpen})
			b.breaker(breaker.Change{Handler: "billing", Scope: "acme", From: circuit.HalfOpen, To: circuit.Ramping})
			b.breaker(breaker.Change{Handler: "billing", Scope: "acme", From: circuit.Ramping, To: circuit.Closed})
			time.Sleep(20 * time.Second)
		}
		n := in.one(t, notify.BreakerOpen, notify.StatusNew)
		testkit.Check(t, n.Handler == "billing" && n.Subject == "acme" && n.Reason == "unavailable" &&
			n.Description == "refused ***" && n.Count == 1, "%+v", n)
		testkit.Equal(t, "notices of an end", len(in.of(notify.BreakerOpen, notify.StatusResolved)), 0)
		time.Sleep(2 * time.Minute)
		over := in.one(t, notify.BreakerOpen, notify.StatusResolved)
		testkit.Check(t, over.Total == 30 &&
			strings.HasPrefix(over.Title, "Resolved: The breaker holds messages: billing"), "%+v", over)
		b.channel.Breaker().Open("shipping", "by hand") // which the poll sees as long as it lasts
		time.Sleep(time.Hour)
		all := in.of(notify.BreakerOpen, notify.StatusNew)
		testkit.Check(t, len(all) == 2 && all[1].Handler == "shipping" &&
			len(in.of(notify.BreakerOpen, notify.StatusResolved)) == 1, "%s", in.String())
		b.channel.Breaker().Close("shipping")
		time.Sleep(2 * time.Minute)
		testkit.Equal(t, "notices of an end", len(in.of(notify.BreakerOpen, notify.StatusResolved)), 2)
		b.Stop()
	})
}

// Feature O4: a sink that refuses receives later what waited, in order. What is given up, the next notice counts.
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var in inbox
		var down atomic.Bool
		var attempts atomic.Int32
		b := inBubble(t, notify.Config{Sinks: []notify.Sink{func(ctx context.Context, n notify.Notice) error {
			attempts.Add(1)
			if down.Load() {
				return fmt.Errorf("500 Internal Server Error")
			}
			return in.sink(ctx, n)
		}}})
		down.Store(true)
		b.place("a", "b", "c")
		time.Sleep(50 * time.Minute)
		testkit.Check(t, attempts.Load() >= 40 && attempts.Load() <= 100, "%d attempts in 50 minutes", attempts.Load())
		down.Store(false)
		time.Sleep(2 * time.Minute)
		all := in.of(notify.NewCause, notify.StatusNew)
		testkit.Check(t, len(all) == 3 && all[0].Missed+all[1].Missed+all[2].Missed == 0, "%+v", all)
		lines := b.log.Errors()
		testkit.Check(t, len(lines) == 1 && len(b.log.Lines(watermill.InfoLogLevel, "accepts")) == 1, "%v", lines)
		down.Store(true)
		b.place("d", "e")
		time.Sleep(3 * time.Hour)
		down.Store(false)
		time.Sleep(2 * time.Minute)
		b.place("f")
		time.Sleep(2 * time.Second)
		all = in.of(notify.NewCause, notify.StatusNew)
		testkit.Check(t, len(all) == 4 && all[3].Reason == "f" && all[3].Missed == 2, "%+v", all)
		b.place("g")
		time.Sleep(2 * time.Second)
		all = in.of(notify.NewCause, notify.StatusNew)
		testkit.Check(t, len(all) == 5 && all[4].Missed == 0, "%+v", all)
		b.Stop()
	})
}

// Feature O4: what a sink says of the next attempt holds: at once never, after a while, or no more.
func TestVerdictsOfSinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []time.Duration
		begun := time.Now()
		b := inBubble(t, notify.Config{Sinks: []notify.Sink{func(_ context.Context, n notify.Notice) error {
			calls = append(calls, time.Since(begun))
			switch len(calls) {
			case 1:
				return classify.Transient(errors.New("slow down"), classify.RetryAfter(5*time.Minute))
			case 2:
				return classify.Transient(errors.New("slow down"), classify.RetryAfter(1000*time.Hour))
			case 3:
				return classify.Permanent(errors.New("no such hook"))
			case 4:
				panic("a bug")
			}
			return nil
		}}})
		b.place("a")
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		testkit.Check(t, len(calls) == 3 && calls[1] == 5*time.Minute && calls[2] == 15*time.Minute, "%v", calls)
		b.place("b")
		time.Sleep(time.Minute)
		synctest.Wait()
		testkit.Check(t, len(calls) == 5, "%v", calls)
		b.Stop()
	})
}

// Feature O4: a router that closes waits for the notice that a sink has in hand, and sends what happened just before.
func TestCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var in inbox
		begun := make(chan string, 2)
		b := inBubble(t, notify.Config{Sinks: []notify.Sink{func(ctx context.Context, n notify.Notice) error {
			begun <- n.Reason
			select {
			case <-time.After(2 * time.Second):
				return in.sink(ctx, n)
			case <-ctx.Done():
				return ctx.Err()
			}
		}}})
		b.place(cause(1))
		<-begun
		b.place(cause(2))
		b.Stop()
		testkit.Equal(t, "notices", len(in.of(notify.NewCause, notify.StatusNew)), 2)
	})
}

// Feature O4: a sink that hangs holds up no other, no hook, and the end for 5 s at most. What finds no room is counted.
func TestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var in inbox
		deaf := make(chan struct{}) // a sink that does not even end with its context
		var once atomic.Bool
		b := inBubble(t, notify.Config{Sinks: []notify.Sink{in.sink, func(ctx context.Context, _ notify.Notice) error {
			if once.CompareAndSwap(false, true) {
				<-deaf
			} else {
				<-ctx.Done()
			}
			return ctx.Err()
		}}}, notify.Bound)
		for i := range 10 {
			b.place(cause(i))
			time.Sleep(2 * time.Second)
		}
		n := len(in.of(notify.NewCause, notify.StatusNew))
		testkit.Check(t, n == 10, "%d notices, of 10, beside a sink that hangs", n)
		lines := b.log.Errors()
		testkit.Check(t, len(lines) == 1 && strings.Contains(lines[0].Text, "is full"), "%v", lines)
		b.place(cause(0))
		time.Sleep(2 * time.Hour) // giving up has the summary told to those who listen
		all := in.of(notify.NewCause, notify.StatusSummary)
		testkit.Check(t, len(all) == 1, "%+v", all)
		begun := time.Now()
		b.Stop()
		took := time.Since(begun)
		testkit.Check(t, took <= 7*time.Second, "it closed in %s", took)
		close(deaf)
	})
}

// cause is a word without a digit, which would be folded.
func cause(i int) string {
	return strings.NewReplacer("0", "a", "1", "b", "2", "c", "3", "d", "4", "e", "5", "f", "6", "g", "7", "h", "8", "i", "9", "j").Replace(fmt.Sprint(i))
}

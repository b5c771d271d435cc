package redrive_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

// Feature V2: the rate is exact to 1 % with a publisher that stalls. After an idle time nothing is made up for.
func TestHandler_rateOfSlowPublisher(t *testing.T) {
	random := testkit.Random(t)
	synctest.Test(t, func(t *testing.T) {
		out := &outbox{Before: func(string, *message.Message) error {
			time.Sleep(time.Duration(random.IntN(1200)) * time.Microsecond) // 0.6 ms on average
			if random.IntN(500) == 0 {
				time.Sleep(15 * time.Millisecond)
			}
			return nil
		}}
		h := newHandler(t, out, redrive.HandlerConfig{Rules: redrive.Rules{Rate: 1000}, Park: &outbox{}})
		for range 2 {
			start := time.Now()
			for i := range 10_001 {
				testkit.NoError(t, h.Handle(letter(fmt.Sprint(i), "a")))
			}
			took := time.Since(start)
			testkit.Check(t, math.Abs(took.Seconds()-10) <= 0.1, "10,001 letters at 1,000 a second took %s", took)
			time.Sleep(time.Hour)
		}
	})
}

// Feature V2: however long publishes take, at most a turn and 100 ms are made up for.
func TestHandler_rateOfStalledPublisher(t *testing.T) {
	random := testkit.Random(t)
	const n, every = 11, 50 * time.Millisecond
	shortest := time.Hour
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			stall := time.Duration(random.IntN(200)) * time.Millisecond
			out := &outbox{Before: func(string, *message.Message) error { time.Sleep(stall); stall = 0; return nil }}
			var first, last time.Time
			h := newHandler(t, out, redrive.HandlerConfig{Park: &outbox{}, Rules: redrive.Rules{Rate: 20, Hooks: redrive.Hooks{
				OnRedrive: func(context.Context, poison.Letter, string) {
					if last = time.Now(); first.IsZero() {
						first = last
					}
				},
			}}})
			for i := range n {
				testkit.NoError(t, h.Handle(letter(fmt.Sprint(i), "a")))
			}
			took := last.Sub(first)
			least := (n-2)*every - 100*time.Millisecond
			testkit.Check(t, took >= least, "%d letters in %s, at least %s were due", n, took, least)
			shortest = min(shortest, took)
		})
	}
	testkit.Check(t, shortest < (n-2)*every, "the shortest of all took %s: no stall was made up for", shortest)
}

// Feature V2: the rate bounds calls, also those for letters offered again. Who gives up uses no turn.
func TestHandler_rateBoundsAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		live := &outbox{Before: func(string, *message.Message) error {
			if calls++; calls%3 != 0 {
				return errDown
			}
			return nil
		}}
		h := newHandler(t, live, redrive.HandlerConfig{Rules: redrive.Rules{Rate: 5}, Park: &outbox{}})
		start := time.Now()
		for i := range 17 {
			testkit.NoError(t, h.Handle(letter(fmt.Sprint(i), "a")))
		}
		took := time.Since(start)
		testkit.Check(t, calls == 51 && took >= 10*time.Second && took <= 11*time.Second,
			"%d calls at 5 a second took %s", calls, took)

		for _, notified := range []bool{true, false} { // when the context ends
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if !notified {
				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(time.Millisecond, cancel)
			}
			msg := letter("late", "a")
			msg.SetContext(ctx)
			err := h.Handle(msg)
			testkit.Check(t, err != nil && calls == 51, "%v after %d calls", err, calls)
			cancel()
		}
		calls = 2
		err := h.Handle(letter("next", "a"))
		testkit.Check(t, err == nil && time.Since(start) <= 10300*time.Millisecond,
			"the next one came after %s: %v", time.Since(start), err)
	})
}

// Feature V1, promise P6: a letter rests for MinWait after its failure and its redrive. The future counts as now.
func TestHandler_minWait(t *testing.T) {
	for name, row := range map[string]struct {
		configured       time.Duration
		failed, redriven time.Duration // ago
		want             time.Duration
	}{
		"just failed":        {failed: 0, redriven: time.Hour, want: redrive.DefaultMinWait},
		"failed a while ago": {failed: 4 * time.Second, redriven: time.Hour, want: redrive.DefaultMinWait - 4*time.Second},
		"failed long ago":    {failed: time.Hour, redriven: 2 * time.Hour},
		"redriven after":     {failed: time.Hour, redriven: time.Second, want: redrive.DefaultMinWait - time.Second},
		"in the future":      {failed: -24 * time.Hour, want: redrive.DefaultMinWait},
		"configured":         {configured: time.Hour, failed: time.Minute, redriven: time.Hour, want: 59 * time.Minute},
		"none":               {configured: -1, failed: 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				live := &outbox{}
				h := testkit.Must(redrive.NewHandler(live, redrive.HandlerConfig{Rules: redrive.Rules{Allow: []string{"orders"}}, Park: &outbox{}, MinWait: row.configured}))
				start := time.Now()
				msg := letter("1", "a", func(l *poison.Letter) {
					l.Failure.LastFailedAt, l.Redrive.At = start.Add(-row.failed), start.Add(-row.redriven)
				})
				err := h.Handle(msg)
				testkit.Require(t, err == nil && len(live.All()) == 1, "%d published, %v", len(live.All()), err)
				waited := time.Since(start)
				testkit.Check(t, waited == row.want, "waited %s, want %s", waited, row.want)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // going away ends the wait, and what is over its count does not wait
		live, park := &outbox{}, &outbox{}
		h := testkit.Must(redrive.NewHandler(live, redrive.HandlerConfig{Rules: redrive.Rules{Allow: []string{"orders"}}, Park: park}))
		now := func(l *poison.Letter) { l.Failure.LastFailedAt = time.Now() }
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		msg := letter("1", "a", now)
		msg.SetContext(ctx)
		start := time.Now()
		err := h.Handle(msg)
		testkit.Check(t, errors.Is(err, context.Canceled) && len(live.All())+len(park.All()) == 0 &&
			time.Since(start) == time.Second, "%v after %s", err, time.Since(start))
		start = time.Now()
		err = h.Handle(letter("2", "a", now, redrivenTimes(3)))
		testkit.Check(t, err == nil && len(park.All()) == 1 && time.Since(start) == 0,
			"quarantined after %s, %v", time.Since(start), err)
	})
}

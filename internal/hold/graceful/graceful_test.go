package graceful_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/hold/graceful"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Promise P3: the contexts of messages end when all are settled, or after the time-out, and waits end at once.
func TestTwoSteps(t *testing.T) {
	for name, row := range map[string]struct {
		timeout, settled, want time.Duration
	}{
		"settled in time": {timeout: time.Minute, settled: time.Second, want: time.Second},
		"never settled":   {timeout: time.Minute, settled: time.Hour, want: time.Minute},
		"by default":      {settled: time.Hour, want: graceful.Timeout},
		"off":             {timeout: -1, settled: time.Hour, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(time.Hour))
				if row.timeout != 0 {
					ctx = graceful.With(ctx, row.timeout)
				}
				d := graceful.Begin(ctx)
				waits, stop := graceful.Waits(d.Work)
				defer stop()
				if _, limited := d.Work.Deadline(); limited || d.Work.Err() != nil || waits.Err() != nil || graceful.Began(d.Work) {
					t.Fatal("something ended before its time")
				}
				began := time.Now()
				cancel()
				<-waits.Done()
				if time.Since(began) != 0 || !graceful.Began(d.Work) {
					t.Errorf("a wait ended after %s", time.Since(began))
				}
				defer time.AfterFunc(row.settled, d.End).Stop()
				<-d.Work.Done()
				if got := time.Since(began); got != row.want || d.Work.Err() != context.Canceled {
					t.Errorf("the contexts ended after %s with %v", got, d.Work.Err())
				}
				d.End()
			})
		})
	}
}

// A message of another subscription waits for as long as its context lasts.
func TestWithoutDrain(t *testing.T) {
	ctx, stop := graceful.Waits(t.Context())
	stop()
	if ctx != t.Context() || graceful.Began(ctx) || graceful.TakingOf(ctx) != nil {
		t.Error("the context is of a drain")
	}
}

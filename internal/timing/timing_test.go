package timing

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Feature R3: a wait lasts as long as it should, and no longer than its context.
func TestWait(t *testing.T) {
	for _, row := range []struct {
		name          string
		limit, d, end time.Duration // when the context is cancelled, what is asked for, what it takes
		want          bool
	}{
		{"whole", time.Hour, time.Second, time.Second, true},
		{"cut off", time.Second, time.Hour, time.Second, false},
		{"nothing to wait for", time.Second, 0, 0, true},
		{"negative", time.Second, -time.Second, 0, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(context.Background())
				defer time.AfterFunc(row.limit, cancel).Stop()
				defer cancel()
				start := time.Now()
				if got := Wait(ctx, row.d); got != row.want || time.Since(start) != row.end {
					t.Fatalf("got %t after %s", got, time.Since(start))
				}
			})
		})
	}
}

// Promise P3: a context that ended is seen even where there is nothing to wait for: no luck of a select is in it.
func TestForEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 1000 {
		if Wait(ctx, 0) || Wait(ctx, -time.Second) {
			t.Fatal("the ended context went unseen")
		}
	}
}

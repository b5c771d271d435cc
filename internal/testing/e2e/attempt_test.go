package e2e_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive"
)

// Feature R18, promise P6: a handler knows its attempt over retries, stages and redrives, whether it is the last one
// before the dead letter, and since when the message fails.
func TestAttemptOf(t *testing.T) {
	b := newBench(t, true)
	ch := b.Channel(b.staged(delayStore(t, b.DB)), func(c *spillway.Config) { c.Retry.Attempts = 2 })
	var mu sync.Mutex
	var made []spillway.Attempt
	stop := b.runStaged(ch, func(msg *message.Message) ([]*message.Message, error) {
		mu.Lock()
		defer mu.Unlock()
		made = append(made, spillway.AttemptOf(msg.Context()))
		if len(made) > 7 {
			return nil, nil
		}
		return nil, classify.Transient(errors.New("503"))
	})
	defer stop()
	began := time.Now()
	b.Publish(message.NewMessage("1", nil))
	b.Eventually("it is a letter", func() bool { return len(b.Waiting()) == 1 })
	report, err := redrive.Drain(t.Context(), b.Letters, b.Source, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}}})
	testkit.Require(t, err == nil && report.Redriven == 1, "%+v: %v", report, err)
	b.Eventually("it succeeds", func() bool { mu.Lock(); defer mu.Unlock(); return len(made) == 8 })
	mu.Lock()
	defer mu.Unlock()
	for i, a := range made {
		testkit.Check(t, a.Number == i+1 && a.Last == (i == 5), "attempt %d is told as %+v", i+1, a)
		testkit.Check(t, i == 0 && a.FirstFailed.IsZero() || i > 0 && a.FirstFailed.Sub(made[1].FirstFailed).Abs() < 2*time.Millisecond &&
			a.FirstFailed.After(began.Add(-time.Second)), "attempt %d: first failed at %s, and before %s", i+1, a.FirstFailed, made[1].FirstFailed)
	}
}

// Feature R18: without stages and retries the first attempt is the last one. What a producer writes as history is read
// as far as it goes.
func TestAttemptOfHostile(t *testing.T) {
	b := newBench(t, false)
	made := make(chan spillway.Attempt, 9)
	stop := b.Run(b.Channel(func(c *spillway.Config) { c.Retry.Attempts = 1 }).Attach, func(msg *message.Message) ([]*message.Message, error) {
		made <- spillway.AttemptOf(msg.Context())
		return nil, nil
	})
	defer stop()
	for i, metadata := range []message.Metadata{nil, {"x-redrive-count": "1"}, {"x-redrive-count": "9", "x-attempts": "-99999999999999999999",
		"x-attempt-history": "[[[", "x-first-failed-at": "soon"}} {
		msg := message.NewMessage(string(rune('a'+i)), nil)
		msg.Metadata = metadata
		b.Publish(msg)
	}
	b.Eventually("all are handled", func() bool { return len(made) == 3 })
	for range 3 {
		a := <-made
		testkit.Check(t, a == spillway.Attempt{Number: 1, Last: true}, "%+v", a)
	}
}

// Feature R18, promise P5: a first attempt is told for nothing.
func TestAttemptOfAllocatesNothing(t *testing.T) {
	ctx := t.Context()
	n := testing.AllocsPerRun(100, func() { _ = spillway.AttemptOf(ctx) })
	testkit.Check(t, n == 0 && spillway.AttemptOf(ctx) == spillway.Attempt{Number: 1}, "%g allocations", n)
	testkit.Check(t, spillway.AttemptOf(chain.WithAttempt(ctx, chain.Attempt{Failed: 2})).Number == 3, "it is not told")
}

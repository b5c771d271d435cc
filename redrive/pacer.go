package redrive

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/internal/timing/wait"
)

// maxLateness is how late a turn may be and still be made up for by those after it. A longer gap is a time in which
// nothing was asked for, and gives nothing away.
const maxLateness = 100 * time.Millisecond

// pacer gives turns at a steady rate. The turns are due at fixed times, so that a timer or publisher that is a little
// late does not make all later turns late too: of a bucket that holds one token, such a delay takes 24 % at 1,000 turns
// a second.
type pacer struct {
	every time.Duration

	lock sync.Mutex
	due  time.Time // when the next turn is
}

func newPacer(rate float64) *pacer {
	const longest = 100 * 365 * 24 * time.Hour
	return &pacer{every: time.Duration(math.Min(float64(time.Second)/rate, float64(longest)))}
}

// wait waits for a turn, no longer than ctx lasts. It fails at once if the turn comes after the deadline of ctx.
func (p *pacer) wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	now := time.Now()
	p.lock.Lock()
	if now.Sub(p.due) > maxLateness {
		p.due = now
	}
	turn := p.due
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(turn) {
		p.lock.Unlock()
		return fmt.Errorf("%w: the rate allows the next letter after it", context.DeadlineExceeded)
	}
	next := turn.Add(p.every)
	p.due = next
	p.lock.Unlock()

	if pause := turn.Sub(now); pause <= 0 || wait.For(ctx, pause) {
		return nil
	}
	p.lock.Lock()
	if p.due.Equal(next) { // no later turn was given out: this one is free again
		p.due = turn
	}
	p.lock.Unlock()
	return ctx.Err()
}

package redrive

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/internal/chain/traced"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/internal/engine"
)

// wait waits for the rate, no longer than ctx lasts.
func (r *rules) wait(ctx context.Context) error {
	if r.pacer == nil {
		return ctx.Err()
	}
	return r.pacer.wait(ctx)
}

// publishing is how the rules offer a letter to a publisher. The first attempt's turn has been waited for; each further
// attempt takes a turn of its own. Hooks are called with the letter as it is kept, which may be sealed.
func (r *rules) publishing(ctx context.Context, l poison.Letter, topic string) engine.Publishing {
	return engine.Publishing{By: r.traced(), Publisher: r.publisher, Attempts: r.PublishAttempts, Classifier: r.Classifier,
		Turn: r.wait, Refused: func(err error) {
			r.onPublishError(ctx, l, err)
			eventRedriveUnplaced.Write(r.Logger, err, fields(l, topic))
		}}
}

// redrive publishes the letter as the message that it was.
func (r *rules) redrive(ctx context.Context, kept, l poison.Letter, topic string) (trace string, _ error) {
	return r.publishing(ctx, kept, topic).Redrive(ctx, kept, l, topic, r.By, r.id)
}

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

	if pause := turn.Sub(now); pause <= 0 || timing.Wait(ctx, pause) {
		return nil
	}
	p.lock.Lock()
	if p.due.Equal(next) { // no later turn was given out: this one is free again
		p.due = turn
	}
	p.lock.Unlock()
	return ctx.Err()
}

func (r *rules) traced() traced.By { return traced.By{Tracer: r.Hooks.Tracer, Logger: r.Logger} }

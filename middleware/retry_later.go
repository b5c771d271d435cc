package middleware

import (
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/outage"
	"github.com/watermill-spillway/spillway/internal/recent"
	"github.com/watermill-spillway/spillway/internal/wait"
)

const (
	// minNotNow and maxNotNow bound the waits before a handler is asked again, which double.
	minNotNow = 250 * time.Millisecond
	maxNotNow = 10 * time.Second
	// notNowForgotten is how long after its last error a message that comes again is a new one.
	notNowForgotten = 10 * time.Minute
)

// notNow invokes the handler again, uncounted, for as long as it says that it cannot handle the message now. It returns
// what the handler returned when it said something else, or the error that gives the message back: when the message was held
// for NotNowHold, or its context ends first.
func (r *Retry) notNow(c *chain.Call, next chain.Handler, err error, verdict classify.Verdict) (out []*message.Message, _ error) {
	ctx := c.WaitContext()
	until := time.Now().Add(outage.MaxHold(ctx, r.config.NotNowHold))
	for {
		pause := max(r.later.pause(c), verdict.RetryAfter)
		if pause > time.Until(until) || outlasts(ctx, pause, r.config.Reserve) {
			// It is held for as long as it may be, lest a broker that delivers at once spins.
			pause = max(min(pause, time.Until(until)), 0)
			if deadline, ok := ctx.Deadline(); ok {
				pause = max(min(pause, time.Until(deadline)-r.config.Reserve), 0)
			}
			wait.For(ctx, pause)
			return nil, c.PutBack(err)
		}
		if !wait.For(ctx, pause) {
			return nil, c.PutBack(err)
		}
		c.Restore()
		if out, err = next(c); err == nil {
			r.later.forget(c)
			return out, nil
		}
		if c.Nacked() || c.Aborted() || c.Acked() {
			return nil, err
		}
		if verdict = r.config.Classifier.Classify(err); !verdict.NotNow {
			r.later.forget(c)
			return nil, err
		}
		if r.later.tooLong(c, r.config.NotNowFor) {
			return nil, err
		}
	}
}

// postponed remembers since when handlers say "not now" of their messages.
type postponed struct {
	mu sync.Mutex
	of recent.Memory[postponement]
}

type postponement struct {
	first time.Time
	pause time.Duration // the last one
}

// tooLong notes that a handler said "not now", and reports whether it has done so for longer than most.
func (p *postponed) tooLong(c *chain.Call, most time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	one := p.of.Note(recent.Of(c), now)
	if one.first.IsZero() {
		one.first = now
	}
	return now.Sub(one.first) >= most
}

// pause returns the next wait for a message.
func (p *postponed) pause(c *chain.Call) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.of.Get(recent.Of(c))
	if one == nil {
		return minNotNow
	}
	one.pause = min(max(2*one.pause, minNotNow), maxNotNow)
	return one.pause
}

func (p *postponed) forget(c *chain.Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of.Forget(recent.Of(c))
}

package middleware

import (
	"hash/fnv"
	"strconv"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/outage"
	"github.com/watermill-spillway/spillway/internal/wait"
)

const (
	// minNotNow and maxNotNow bound the waits before a handler is asked again, which double.
	minNotNow = 250 * time.Millisecond
	maxNotNow = 10 * time.Second
	// notNowForgotten is how long after its last error a message that comes again is a new one.
	notNowForgotten = 10 * time.Minute
	// maxPostponed bounds what is remembered.
	maxPostponed = 1000
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

// postponed remembers since when handlers say "not now" of their messages. It is of this process alone, and forgets with it.
type postponed struct {
	mu sync.Mutex
	of map[refusal]*postponement
}

type postponement struct {
	first, last time.Time
	pause       time.Duration // the last one
}

// of is a message of a handler, by what it was on entry: a handler can change its id.
func subject(c *chain.Call) refusal {
	handler := message.HandlerNameFromCtx(c.Ctx)
	if id := c.ID(); id != "" {
		return refusal{handler, id}
	}
	sum := fnv.New64a()
	_, _ = sum.Write(c.Msg.Payload)
	return refusal{handler, strconv.FormatUint(sum.Sum64(), 16)}
}

// tooLong notes that a handler said "not now", and reports whether it has done so for longer than most.
func (p *postponed) tooLong(c *chain.Call, most time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	of, now := subject(c), time.Now()
	one := p.of[of]
	if one == nil || now.Sub(one.last) > notNowForgotten {
		p.makeRoom(now)
		one = &postponement{first: now}
		p.of[of] = one
	}
	one.last = now
	return now.Sub(one.first) >= most
}

// pause returns the next wait for a message.
func (p *postponed) pause(c *chain.Call) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.of[subject(c)]
	if one == nil {
		return minNotNow
	}
	one.pause = min(max(2*one.pause, minNotNow), maxNotNow)
	return one.pause
}

func (p *postponed) forget(c *chain.Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, subject(c))
}

// makeRoom forgets what is old, and if that is not enough anything.
func (p *postponed) makeRoom(now time.Time) {
	if p.of == nil {
		p.of = make(map[refusal]*postponement)
	}
	if len(p.of) < maxPostponed {
		return
	}
	for of, one := range p.of {
		if now.Sub(one.last) > notNowForgotten {
			delete(p.of, of)
		}
	}
	for of := range p.of {
		if len(p.of) < maxPostponed {
			return
		}
		delete(p.of, of)
	}
}

package middleware

import (
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/hold/recent"
	"github.com/watermill-spillway/spillway/internal/timing"
)

const (
	// minNotNow and maxNotNow bound the waits before a handler is called again. Each wait is twice the one before.
	minNotNow = 250 * time.Millisecond
	maxNotNow = 10 * time.Second
	// notNowFor is how long a message may come again uncounted. It is longer than most locks and pauses, and each
	// message must end.
	notNowFor = time.Hour
	// postponedFor is how long after its last classify.NotNow a message that comes again is a new one.
	postponedFor = 10 * time.Minute
)

// notNow calls the handler again, uncounted, while its error says classify.NotNow. It returns what the handler returned
// otherwise. If the message was held for NotNowHold, or its context ends first, the message is requeued.
func (r *Retry) notNow(c *chain.Call, next chain.Handler, o chain.Outcome,
	verdict classify.Verdict) (_ []*message.Message, _ chain.Outcome, took time.Duration) {
	ctx := c.WaitContext()
	rest := hold.Rest(ctx, r.config.NotNowHold, c.Held())
	until := time.Now().Add(rest)
	defer hold.Holding(c, rest, r.config.Logger)()
	for {
		pause := max(r.postponed.pause(c), verdict.RetryAfter)
		if rest := time.Until(until); pause > rest {
			timing.Wait(ctx, max(rest, 0)) // hold it as long as possible: some brokers redeliver at once
			return nil, chain.Outcome{Next: chain.Requeue, Why: chain.Requeued(o.Why)}, 0
		}
		if !timing.Wait(ctx, pause) {
			return nil, chain.Outcome{Next: chain.Requeue, Why: chain.Requeued(o.Why)}, 0
		}
		c.AddHeld(pause)
		c.Restore()
		var out []*message.Message
		if out, o, took = r.call(c, next); o.Next == chain.Done {
			r.postponed.forget(c)
			return out, o, took
		}
		if c.Nacked() || c.Left(o) || c.Acked() {
			return nil, o, took
		}
		if verdict = r.config.Classifier.Classify(o.Why); !verdict.NotNow {
			r.postponed.forget(c)
			return nil, o, took
		}
		if r.postponed.tooLong(c, notNowFor) {
			return nil, o, took
		}
	}
}

// postponed remembers since when messages are put off, uncounted.
type postponed struct {
	mu sync.Mutex
	of recent.Memory[postponement]
}

func newPostponed() postponed { return postponed{of: recent.For[postponement](postponedFor)} }

type postponement struct {
	first time.Time
	pause time.Duration // the last one
}

// tooLong notes that c's message is put off, and reports whether it has been so for most or longer.
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

// Recover is a middleware that makes a *classify.PanicError of a panic of h, with its value and stack. It also makes an
// error of a nil message among the outputs, which would make the router panic. It belongs innermost, next to the
// handler. It does not stop runtime.Goexit, which poison.Queue settles.
func Recover(h message.HandlerFunc) message.HandlerFunc {
	return chain.EnterParts(chain.Recover)(h)
}

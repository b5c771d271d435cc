package outage

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/chain"
)

const (
	// probeEvery is the time between two attempts during an outage, whatever the number of messages that wait.
	probeEvery = time.Second
	// courtesy is how long the message that looked last lets others go first.
	courtesy = 100 * time.Millisecond
	// reserve is the time kept free before the deadline of a message, to give it back in.
	reserve = time.Second
	// declaredAfter is the number of failures in a row that make an outage. One failure can be that of one message.
	declaredAfter = 2
)

// Config configures a Guard.
type Config struct {
	// Name says in log lines what is away.
	Name string
	// MaxHold is how long a message is held at most before it is given back. Default: as the function MaxHold says.
	MaxHold time.Duration
	// Away reports whether an error says that the thing is away. Default: Away.
	Away func(error) bool
	// Lost reports whether an error says that the connection was lost under the request, which the request itself can have
	// caused. After maxInterruptions of these in a row the error is returned as it is. Default: none does.
	Lost func(error) bool
	// Logger receives a line when an outage begins, and one when it ends. Default: none.
	Logger watermill.LoggerAdapter
}

// Guard watches one thing that the kit needs. It is safe for concurrent use.
type Guard struct {
	config Config
	away   atomic.Bool // an outage was declared
	noting atomic.Bool // there is something that a success changes

	mu       sync.Mutex
	failures int           // in a row
	began    time.Time     // of the first failure
	next     time.Time     // of the next attempt
	latest   subject       // that failed
	latestAt time.Time     // and when
	waiting  int           // messages that wait now
	up       chan struct{} // closed by a success
	held     int           // messages that waited
	returned int           // of these, and others, given back
	suspects suspects
}

// New returns a Guard.
func New(config Config) *Guard {
	if config.Away == nil {
		config.Away = Away
	}
	if config.Logger == nil {
		config.Logger = watermill.NopLogger{}
	}
	return &Guard{config: config}
}

// Do calls try on behalf of c's message. It returns nil, or try's error if that says something of the message. If try
// fails because the thing is away, Do holds the message and calls try again, until ctx ends or MaxHold has passed; then the
// error gives the message back. Pass the context in which try waits.
func (g *Guard) Do(ctx context.Context, c *chain.Call, try func() error) error {
	var err error
	if !g.away.Load() {
		if err = try(); !g.failed(ctx, c, err) {
			return err
		}
		if g.refusedForGood(c) {
			return err
		}
	}
	return g.hold(ctx, c, try, err)
}

// hold waits for its turns. err is the failure so far, or nil.
func (g *Guard) hold(ctx context.Context, c *chain.Call, try func() error, err error) error {
	until, of := g.until(ctx), subjectOf(c)
	g.mu.Lock()
	g.held++
	g.waiting++
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.waiting--
	}()
	for {
		switch g.turn(ctx, of, until) {
		case ended, expired:
			return g.GiveBack(c, err)
		}
		if err = try(); !g.failed(ctx, c, err) {
			return err
		}
		if ctx.Err() != nil {
			return g.GiveBack(c, err)
		}
		if g.refusedForGood(c) {
			return err
		}
	}
}

// until is when a message is given back.
func (g *Guard) until(ctx context.Context) time.Time {
	until := time.Now().Add(MaxHold(ctx, g.config.MaxHold))
	if deadline, ok := ctx.Deadline(); ok && deadline.Add(-reserve).Before(until) {
		until = deadline.Add(-reserve)
	}
	return until
}

type outcome int

const (
	granted outcome = iota // try now
	expired                // the message was held for long enough
	ended                  // its context ended
)

// turn waits until the thing is back or it is the caller's turn to look. The message that looked last lets others go first:
// it may be the only one that is refused.
func (g *Guard) turn(ctx context.Context, of subject, until time.Time) outcome {
	for {
		g.mu.Lock()
		now := time.Now()
		if g.failures == 0 {
			g.mu.Unlock()
			return granted
		}
		if !now.Before(until) {
			g.mu.Unlock()
			return expired
		}
		next := g.next
		if of == g.latest && g.waiting > 1 {
			next = next.Add(courtesy)
		}
		if !now.Before(next) {
			g.next = now.Add(probeEvery)
			g.mu.Unlock()
			return granted
		}
		pause, up := min(next.Sub(now), until.Sub(now)), g.up
		g.mu.Unlock()

		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-up:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return ended
		}
	}
}

// failed notes what came of an attempt, and reports whether it failed because the thing is away.
func (g *Guard) failed(ctx context.Context, c *chain.Call, err error) bool {
	if err == nil {
		g.passed(c)
		return false
	}
	if ctx.Err() != nil { // the attempt was cut off, and nothing is known
		return false
	}
	if !g.config.Away(err) {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if g.failures == 0 {
		g.began, g.up = now, make(chan struct{})
	}
	of := subjectOf(c)
	if g.failures == 0 || of != g.latest || now.Sub(g.latestAt) >= probeEvery { // else it is one message that came again at once
		g.failures++
	}
	g.latest, g.latestAt, g.next = of, now, now.Add(probeEvery)
	g.noting.Store(true)
	g.suspects.refused(of, now, g.config.Lost != nil && g.config.Lost(err))
	if g.failures >= declaredAfter && !g.away.Swap(true) {
		g.config.Logger.Error(g.config.Name+": an outage began; messages are held, and given back uncounted, until it is over",
			err, watermill.LogFields{"since": g.began.UTC().Format(time.RFC3339Nano)})
	}
	return true
}

// passed notes that the thing did what c's message needed. Nearly always there is nothing to note.
func (g *Guard) passed(c *chain.Call) {
	if !g.noting.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.suspects.passed(subjectOf(c), now)
	g.recovered(now)
	g.noting.Store(g.suspects.any())
}

// recovered ends an outage. The caller holds mu.
func (g *Guard) recovered(now time.Time) {
	if g.failures == 0 {
		return
	}
	g.failures = 0
	close(g.up)
	if g.away.Swap(false) {
		g.config.Logger.Info(g.config.Name+": the outage is over", watermill.LogFields{
			"lasted": now.Sub(g.began).Round(time.Millisecond).String(), "held": g.held, "given_back": g.returned,
		})
	}
	g.held, g.returned = 0, 0
}

// GiveBack returns the error with which c's message comes again, uncounted. A message that its handler acked cannot come
// again: the error stays what it was.
func (g *Guard) GiveBack(c *chain.Call, err error) error {
	if err == nil {
		err = errWaited
	}
	if c.Acked() {
		return err
	}
	g.mu.Lock()
	g.returned++
	g.mu.Unlock()
	return c.PutBack(err)
}

// Interrupted is for work on c's message that failed with err because a connection was lost under it. It holds the message
// until ping succeeds, and returns the error that gives the message back. After maxInterruptions in a row it returns err.
// Call Settled when the message has come through.
func (g *Guard) Interrupted(ctx context.Context, c *chain.Call, err error, ping func() error) error {
	g.mu.Lock()
	tooOften := g.suspects.interrupted(subjectOf(c), time.Now())
	g.mu.Unlock()
	g.noting.Store(true)
	if tooOften || c.Acked() {
		return err
	}
	if ping != nil {
		_ = g.Do(ctx, c, ping)
	}
	return g.GiveBack(c, err)
}

// Settled forgets what was noted of c's message.
func (g *Guard) Settled(c *chain.Call) {
	if !g.noting.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.suspects.forget(subjectOf(c))
	g.noting.Store(g.failures > 0 || g.suspects.any())
}

func (g *Guard) refusedForGood(c *chain.Call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.suspects.condemned(subjectOf(c), time.Now())
}

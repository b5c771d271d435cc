package outage

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/recent"
)

const (
	// probeEvery is the time between two attempts during an outage, whatever the number of messages that wait.
	probeEvery = time.Second
	// courtesy is how long the message that looked last lets others go first.
	courtesy = 100 * time.Millisecond
	// reserve is the time kept free before the deadline of a message, to give it back in.
	reserve = time.Second
	// closedAfter is the number of failures in a row after which messages wait without an attempt of their own. One failure
	// can be that of one message.
	closedAfter = 2
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
	// caused. After maxInterruptions of these the error is returned as it is. Default: none does. For every client a message
	// that alone loses a connection which the client can make again and again gets its error after maxRefusal.
	Lost func(error) bool
	// Logger receives a line when an outage begins, and one when it ends. Default: none.
	Logger watermill.LoggerAdapter
}

// Guard watches one thing that the kit needs. It is safe for concurrent use.
type Guard struct {
	config Config
	away   atomic.Bool // messages wait without an attempt of their own
	noting atomic.Bool // there is something that a success changes

	mu       sync.Mutex
	failures int            // in a row
	next     time.Time      // of the next attempt
	latest   recent.Message // that failed
	latestAt time.Time      // and when
	waiting  int            // messages that wait now
	up       chan struct{}  // closed by a success
	episode  episode
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
	return &Guard{config: config, suspects: suspects{Memory: recent.For[suspect](forgotten)}}
}

// Do calls try on behalf of c's message. It returns nil, or try's error if that says something of the message. If try
// fails because the thing is away, Do holds the message and calls try again, until ctx ends or MaxHold has passed; then the
// error gives the message back. Pass the context in which try waits.
func (g *Guard) Do(ctx context.Context, c *chain.Call, try func() error) error {
	var err error
	if !g.away.Load() && !g.backsOff(c) {
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
	until, of := g.until(ctx), recent.Of(c)
	g.mu.Lock()
	g.episode.held++
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

// backsOff reports whether c's message was refused while others passed, and is not due yet.
func (g *Guard) backsOff(c *chain.Call) bool {
	if !g.noting.Load() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.suspects.due(recent.Of(c)).After(time.Now())
}

// turn waits until the thing is back or it is the caller's turn to look. The message that looked last lets others go first:
// it may be the only one that is refused. A message that was refused while others passed waits until it is due, whatever
// comes of the others.
func (g *Guard) turn(ctx context.Context, of recent.Message, until time.Time) outcome {
	for {
		g.mu.Lock()
		now := time.Now()
		next, up := g.suspects.due(of), g.up
		if g.failures == 0 {
			up = nil // it is closed
			if !now.Before(next) {
				g.mu.Unlock()
				return granted
			}
		}
		if !now.Before(until) {
			g.mu.Unlock()
			return expired
		}
		if g.failures > 0 {
			probe := g.next
			if of == g.latest && g.waiting > 1 {
				probe = probe.Add(courtesy)
			}
			if probe.After(next) {
				next = probe
			}
			if !now.Before(next) {
				g.next = now.Add(probeEvery)
				g.mu.Unlock()
				return granted
			}
		}
		pause := min(next.Sub(now), until.Sub(now))
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
	lost, l := g.config.Lost != nil && g.config.Lost(err), linkOf(err)
	g.mu.Lock()
	defer g.mu.Unlock()
	now, of := time.Now(), recent.Of(c)
	g.noting.Store(true)
	alone := g.suspects.refused(of, now, lost, l)
	if g.suspects.condemned(of, now) {
		if g.episode.isOf(of) { // what looked like an outage was this message
			g.recovered(now)
		}
		return true
	}
	if alone { // the others pass
		return true
	}
	if g.failures == 0 {
		g.up = make(chan struct{})
	}
	if g.failures == 0 || of != g.latest || now.Sub(g.latestAt) >= probeEvery { // else it is one message that came again at once
		g.failures++
	}
	g.latest, g.latestAt, g.next = of, now, now.Add(probeEvery)
	if g.failures >= closedAfter {
		g.away.Store(true)
	}
	if !g.suspects.passing(of, now) {
		g.failing(of, now, err)
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
	g.suspects.passed(recent.Of(c), now)
	g.recovered(now)
	g.noting.Store(g.suspects.Len() > 0)
}

// recovered lets all messages go on. The caller holds mu.
func (g *Guard) recovered(now time.Time) {
	if g.failures == 0 {
		return
	}
	g.failures = 0
	close(g.up)
	g.away.Store(false)
	g.calming(now)
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
	g.episode.returned++
	g.mu.Unlock()
	return c.PutBack(err)
}

// Interrupted is for work on c's message that failed with err because a connection was lost under it. It holds the message
// until ping succeeds, and returns the error that gives the message back. After maxInterruptions in a row it returns err.
// Call Settled when the message has come through.
func (g *Guard) Interrupted(ctx context.Context, c *chain.Call, err error, ping func() error) error {
	g.mu.Lock()
	tooOften := g.suspects.interrupted(recent.Of(c), time.Now())
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
	g.suspects.Forget(recent.Of(c))
	g.noting.Store(g.failures > 0 || g.suspects.Len() > 0)
}

func (g *Guard) refusedForGood(c *chain.Call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.suspects.condemned(recent.Of(c), time.Now())
}

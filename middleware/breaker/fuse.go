package breaker

import (
	"container/list"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/internal/hold/recent"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
)

const (
	// unavailableInARow is the number of failures in a row that open the breaker if each of their errors says unavailable.
	// One alone may be a hiccup.
	unavailableInARow = 3
	// maxRetryAfter is the longest retry-after of an error that the breaker waits for before a probe.
	maxRetryAfter = 5 * time.Minute
	// maxScopes is the number of scopes of a handler that have a state of their own.
	maxScopes = 100
	// calm is how long nothing must fail until what failed is forgotten, although nothing succeeds.
	calm = 10 * time.Minute
	// probeLease is how long the breaker waits for the outcome of a probe before it lets another message try. A handler
	// may hang.
	probeLease = 30 * time.Second
	// maxAlone is the number of messages in an outage that may go to a stage because nothing confirms the outage.
	maxAlone = 2
)

// fuse is the breaker of one handler and scope. Its methods are called with the breaker's lock held unless they say
// otherwise.
type fuse struct {
	breaker *Breaker
	place

	troubled      bool // something failed lately
	failedAt      time.Time
	passes        bool      // something succeeded since then
	unavailableAt time.Time // when an error last said unavailable
	window        window
	doubt         doubt

	state  state
	began  time.Time // when it left Closed
	reason string
	cause  error
	opened uint64        // counts how often it opened: attempts that began before prove nothing
	wait   time.Duration // before the latest probe

	unproven time.Time        // since when too few messages failed in this outage
	alone    []recent.Message // went to a stage all the same
	named    bool             // a log line named the message that fails alone

	shared shared

	queue   list.List     // of *passage, first come first served
	pausing int           // messages that wait a moment for their next attempt while the circuit is closed
	reopen  chan struct{} // shuts valves, or nil
	timer   *time.Timer   // calls tick
}

// decision is what becomes of a message whose attempt ended.
type decision int

const (
	pass      decision = iota // its outcome goes to the parts further out
	keep                      // it waits in the queue
	pause                     // it waits a moment, although others pass
	nextStage                 // it goes to its next stage
	doubtful                  // it is retried as if there were no breaker, unless one of its errors says unavailable
)

func (c *fuse) waiting() int { return c.queue.Len() + c.pausing }

// holds reports whether messages wait for a probe.
func (c *fuse) holds() bool {
	return c.state.name() == circuit.Open || c.state.name() == circuit.HalfOpen
}

// idle reports whether the circuit holds nothing, and the other instances wait for no news of it.
func (c *fuse) idle() bool {
	return c.state.name() == circuit.Closed && c.waiting() == 0 && !c.shared.row && !c.shared.proved
}

// become changes the state. The change is told when the lock is free.
func (c *fuse) become(to state, now time.Time) {
	from := c.state.name()
	c.state = to
	change := Change{Handler: c.handler, Scope: c.scope, From: from, To: to.name(), Reason: c.reason, Cause: c.cause,
		Waiting: c.waiting()}
	if from == change.To {
		return
	}
	if !c.holds() {
		c.doubt.hold(false, now)
	}
	if from == circuit.Closed {
		c.began = now
	} else {
		change.Lasted = now.Sub(c.began)
	}
	c.breaker.changes = append(c.breaker.changes, change)
	if sharing := c.breaker.sharing; sharing != nil && (change.To == circuit.Ramping || from == circuit.Closed) {
		sharing.changed()
	}
}

// trouble begins when something fails, and ends when nothing has failed for a while.
func (c *fuse) trouble(now time.Time) {
	c.failedAt, c.passes = now, false
	if c.troubled {
		return
	}
	c.troubled = true
	c.breaker.troubled.Add(1)
	if c.state.name() == circuit.Closed {
		c.arm(now.Add(c.breaker.config.Window), now)
	}
}

// calmDown forgets what failed.
func (c *fuse) calmDown() {
	if !c.troubled {
		return
	}
	c.troubled = false
	c.breaker.troubled.Add(-1)
	c.window.newRun()
	c.window.begin(time.Time{})
	c.doubt = doubt{}
	c.timer.Stop()
}

// failed notes a failure, and decides what becomes of its message.
func (c *fuse) failed(f *failure, now time.Time) decision {
	f.probe, f.stale, f.p.probe = f.p.probe, f.p.stale(c), false
	c.trouble(now)
	if f.verdict.Unavailable {
		c.unavailableAt = now
	} else if c.doubt.passed = 0; c.meansNothing(f.p, now) {
		return c.doubted(f, now)
	}
	return c.state.failed(c, f, now)
}

// meansNothing reports whether a failure of p's message that does not say unavailable says nothing about other
// messages, because such errors have held the circuit for long enough. While errors say unavailable, it counts all the
// same if its message said so itself: an outage has many errors.
func (c *fuse) meansNothing(p *passage, now time.Time) bool {
	if !c.doubt.over && c.doubt.rest(c.breaker.config.Doubt, now) > 0 {
		return false
	}
	return !c.saysUnavailable(now) || !c.window.saidUnavailable(p.of)
}

// saysUnavailable reports whether an error said unavailable lately.
func (c *fuse) saysUnavailable(now time.Time) bool {
	return !c.unavailableAt.IsZero() && now.Sub(c.unavailableAt) <= c.breaker.config.Doubt
}

// doubted lets a message go on as without a breaker. If no error says unavailable, all messages that wait go on too.
func (c *fuse) doubted(f *failure, now time.Time) decision {
	f.gaveUp, c.doubt.over = !c.doubt.over, true
	switch {
	case c.holds() && !c.saysUnavailable(now):
		c.shared.open, c.shared.until = false, now.Add(calm) // that others find the same says no more
		c.close(now)
	case f.probe && !f.stale && c.state.name() == circuit.HalfOpen:
		c.probeAt(now, now)
	}
	return doubtful
}

// note counts a failure.
func (c *fuse) note(f *failure, now time.Time) (blamed bool) {
	return c.window.note(f.p.of, f.verdict, c.breaker.config.Window, now)
}

// mayOpen counts a failure while messages pass, and opens the circuit if that is enough: row is how many errors in a
// row that say unavailable are.
func (c *fuse) mayOpen(f *failure, row int, now time.Time) decision {
	blamed := c.note(f, now)
	reason := c.window.reason(&c.breaker.config, row, now)
	switch {
	case reason == ReasonNothing && blamed:
		c.open(reason, f, now)
	case reason != "" && !blamed:
		c.open(reason, f, now)
		return keep
	case f.verdict.Unavailable && !blamed && !c.window.mixed():
		return pause
	}
	return pass
}

// open begins an outage, or goes on with it after a ramp that failed.
func (c *fuse) open(reason string, f *failure, now time.Time) {
	if c.state.name() == circuit.Closed {
		c.wait = 0
	}
	c.named, c.alone, c.unproven = false, nil, now
	c.opened++
	c.reason, c.cause = reason, f.err
	c.holdOn(f, now)
}

// holdOn waits for the next probe.
func (c *fuse) holdOn(f *failure, now time.Time) {
	next := &open{}
	c.become(next, now)
	c.doubt.hold(!f.verdict.Unavailable, now)
	config := &c.breaker.config
	c.wait = min(max(2*c.wait, config.Probe), config.MaxProbe)
	pause := c.wait/2 + time.Duration(rand.Int64N(int64(c.wait/2)+1)) // drawn from its upper half
	longest := maxRetryAfter
	if !f.verdict.Unavailable {
		longest = min(longest, c.doubt.rest(config.Doubt, now))
	}
	next.due = now.Add(max(pause, min(f.verdict.RetryAfter, longest)))
	c.arm(next.due, now)
}

// confirmed reports whether enough messages failed in this outage.
func (c *fuse) confirmed() bool {
	return c.window.distinct >= minWitnesses || c.reason == ReasonShared
}

// probeFailed goes on with the outage. If too few messages say unavailable, the message goes to its next stage.
func (c *fuse) probeFailed(f *failure, now time.Time) decision {
	c.cause = f.err
	c.shared.open = false // this instance knows by itself
	if f.verdict.Unavailable && !c.confirmed() && now.Sub(c.unproven) >= c.breaker.config.Doubt {
		if f.later && c.mayLeave(f.p.of) {
			c.unproven = now
			c.probeAt(now, now)
			return nextStage
		}
		f.alone, c.named = !c.named, true
	}
	c.holdOn(f, now)
	return keep
}

// mayLeave reports whether a message may go on in this outage, counted. The same message may go on again.
func (c *fuse) mayLeave(of recent.Message) bool {
	if slices.Contains(c.alone, of) {
		return true
	}
	if len(c.alone) == maxAlone {
		return false
	}
	c.alone = append(c.alone, of)
	return true
}

// succeeded notes a success of p's attempt.
func (c *fuse) succeeded(p *passage, now time.Time) {
	stale := p.stale(c)
	p.probe = false
	switch {
	case !c.holds():
		c.passed(p.of)
	case !stale:
		c.isBack(p, now)
	}
}

// passed counts a success while messages pass. It asks for no time: most messages succeed, also while some fail.
func (c *fuse) passed(of recent.Message) {
	c.passes = true
	c.doubt.succeeded(&c.breaker.config)
	c.window.succeeded(of, false)
}

// isBack ends the outage after a success.
func (c *fuse) isBack(p *passage, now time.Time) {
	c.doubt.succeeded(&c.breaker.config)
	c.window.succeeded(p.of, true)
	if c.breaker.sharing != nil {
		c.shared.prove(now)
	}
	c.ramp(now)
}

// ramp lets messages pass, a few at first.
func (c *fuse) ramp(now time.Time) {
	c.window.newRun()
	c.window.begin(now)
	r := &ramping{until: now.Add(rampStep)}
	c.become(r, now)
	r.let(c, now)
	c.openValves()
}

// close ends the outage, and lets all messages pass that wait.
func (c *fuse) close(now time.Time) {
	c.become(new(closed), now)
	c.cause = nil
	for c.release(false) {
	}
	c.openValves()
	c.state.tick(c, now)
}

// released notes that p's attempt proves nothing. If it was the probe, another message is: at once, or after a wait.
func (c *fuse) released(p *passage, atOnce bool, now time.Time) {
	if p.probe && !p.stale(c) && c.state.name() == circuit.HalfOpen {
		due := now
		if !atOnce {
			due = now.Add(c.wait)
		}
		c.probeAt(due, now)
	}
	p.probe = false
}

// probeAt has the next probe begin at a time.
func (c *fuse) probeAt(due, now time.Time) {
	c.become(&open{due}, now)
	c.state.tick(c, now)
}

// probe notes that a probe begins.
func (c *fuse) probe(now time.Time) {
	c.become(&halfOpen{now}, now)
	c.arm(now.Add(probeLease), now)
}

// status is the state for Health, without the cause.
func (c *fuse) status() circuit.Status {
	status := circuit.Status{Handler: c.handler, Scope: c.scope, State: c.state.name(), Since: c.window.since,
		Waiting: c.waiting()}
	if status.State != circuit.Closed {
		status.Since, status.Reason = c.began, c.reason
	}
	if o, ok := c.state.(*open); ok {
		status.NextProbe = o.due
	}
	return status
}

// arm has tick called at a time. One timer serves all messages of the circuit.
func (c *fuse) arm(at, now time.Time) {
	if c.timer == nil {
		c.timer = time.AfterFunc(at.Sub(now), c.onTimer)
	} else {
		c.timer.Reset(at.Sub(now))
	}
}

func (c *fuse) onTimer() {
	c.breaker.mu.Lock()
	if c.troubled {
		c.state.tick(c, time.Now())
	}
	c.breaker.mu.Unlock()
	c.breaker.tell()
}

// join puts a message at the end of the queue. So those that are held try in turn.
func (c *fuse) join(p *passage) { p.queued, p.goOn = c.queue.PushBack(p), make(chan struct{}) }

// leave takes a message out of the queue. It reports false if the message may go on. Call it without the lock.
func (c *fuse) leave(p *passage) bool {
	c.breaker.mu.Lock()
	defer c.breaker.mu.Unlock()
	if p.queued == nil {
		return false
	}
	c.queue.Remove(p.queued)
	p.queued = nil
	return true
}

// maxLooked bounds the search for a probe.
const maxLooked = 1000

// release lets the first message in the queue go on. It reports false if there is none. A probe is the first one that
// has not failed lately: where some messages are at fault themselves, those that wait longest are such messages.
func (c *fuse) release(probe bool) bool {
	next := c.queue.Front()
	if next == nil {
		return false
	}
	for e, n := next, 0; probe && e != nil && n < maxLooked; e, n = e.Next(), n+1 {
		if c.window.messages.Get(e.Value.(*passage).of) == nil {
			next = e
			break
		}
	}
	p := c.queue.Remove(next).(*passage)
	p.queued = nil
	p.begin(c, probe)
	close(p.goOn)
	return true
}

// shut returns a channel that is closed when a subscription may take messages again.
func (c *fuse) shut() <-chan struct{} {
	if c.reopen == nil {
		c.reopen = make(chan struct{})
	}
	return c.reopen
}

func (c *fuse) openValves() {
	if c.reopen != nil {
		close(c.reopen)
		c.reopen = nil
	}
}

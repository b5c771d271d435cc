package breaker

import (
	"container/list"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/timing/recent"
)

const (
	// awayInARow is the number of failures in a row that open the breaker if each of their errors says away. One alone
	// may be a hiccup.
	awayInARow = 3
	// maxRetryAfter is the longest retry-after of an error that the breaker waits for before a probe.
	maxRetryAfter = 5 * time.Minute
	// maxScopes is the number of scopes of a handler that have a state of their own.
	maxScopes = 100
	// flapsWithin is how soon after closing the breaker opens again to count as flapping.
	flapsWithin = time.Minute
	// calm is how long the breaker must not open until flaps are forgotten, and how long a false alarm is remembered.
	calm = 10 * time.Minute
	// maxFlaps bounds how often the bar is raised.
	maxFlaps = 5
	// probeLease is how long the breaker waits for the outcome of a probe before it lets another message try. A handler
	// may hang.
	probeLease = 30 * time.Second
	// maxSacrificed is the number of messages in an outage that may go to a stage because nothing confirms the outage.
	maxSacrificed = 2
	// maxMixedSacrificed is that number if many messages failed among others that succeeded: perhaps all that wait are
	// of those.
	maxMixedSacrificed = 10
)

// cell is the state of one handler and scope. Its methods are called with mu held unless they say otherwise.
type cell struct {
	breaker        *Breaker
	handler, scope string

	mu       sync.Mutex
	retired  bool // another cell may have its place
	quick    quick
	troubled bool // something failed lately
	failedAt time.Time
	late     bool // for a window nothing failed
	window   window
	doubts   map[string]*doubt // by kind of error
	holder   *doubt            // what keeps the cell open, or nil if that says away
	holding  time.Time         // since when
	awayAt   time.Time         // when an error last said away

	state  State
	since  time.Time // of the state
	began  time.Time // when it left Closed
	reason string
	cause  error
	opened uint64 // counts how often it opened: attempts that began before prove nothing

	wait    time.Duration // before the latest probe
	due     time.Time     // of the next probe
	probing time.Time     // when the latest probe began
	ramp    ramp

	confirmed  bool             // enough messages failed
	unproven   time.Time        // since when too few messages have failed
	sacrificed []recent.Message // went to a stage all the same
	named      bool             // a log line named the message that fails alone
	loneUntil  time.Time        // one message alone does not open the breaker
	heldOut    recent.Message   // failed, and was requeued because its hold ended
	excused    recent.Message   // the same, in a run before
	closedAt   time.Time
	sharedAt   time.Time // when it last opened by share
	flaps      int

	shared shared

	queue    list.List     // of *waiter, first come first served
	pausing  int           // messages that wait a moment for their next attempt while the breaker is closed
	reopen   chan struct{} // shuts valves, or nil
	timer    *time.Timer
	timerFor time.Time
}

func newCell(g *Breaker, handler, scope string) *cell {
	return &cell{breaker: g, handler: handler, scope: scope, state: Closed, window: newWindow()}
}

func (s *cell) waiting() int { return s.queue.Len() + s.pausing }

// idle reports whether the cell holds nothing, and the other instances wait for no news of it.
func (s *cell) idle() bool {
	return s.state == Closed && s.waiting() == 0 && !s.shared.row && !s.shared.proved
}

// become changes the state. The change is told when the lock is free.
func (s *cell) become(to State, now time.Time) {
	if s.state == to {
		return
	}
	change := Change{Handler: s.handler, Scope: s.scope, From: s.state, To: to, Reason: s.reason, Cause: s.cause,
		Waiting: s.waiting()}
	if to != Open && to != HalfOpen {
		s.heldBy(nil, now)
	}
	if s.state == Closed {
		s.began = now
	} else {
		change.Lasted = now.Sub(s.began)
	}
	s.state, s.since = to, now
	s.breaker.changes.add(change)
	if sharing := s.breaker.sharing; sharing != nil && (to == Ramping || change.From == Closed) {
		sharing.changed()
	}
}

// trouble begins when something fails, and ends when nothing has failed for a while.
func (s *cell) trouble(now time.Time) {
	s.failedAt = now
	if s.troubled && !s.late {
		return
	}
	if !s.troubled {
		s.troubled = true
		s.breaker.troubled.Add(1)
	}
	s.late = false
	if s.state == Closed {
		s.arm(s.quiet(), now)
	}
}

// quiet returns when the next success may be the end of the trouble, and then when the trouble ends without one.
func (s *cell) quiet() time.Time {
	if window := s.breaker.config.Window; !s.late && window < calm {
		return s.failedAt.Add(window)
	}
	return s.failedAt.Add(calm)
}

// calmDown forgets what failed.
func (s *cell) calmDown() {
	if !s.troubled {
		return
	}
	s.troubled = false
	s.breaker.troubled.Add(-1)
	s.flaps, s.window.among, s.window.amongAway, s.window.others = 0, 0, 0, 0
	clear(s.doubts)
}

// bar returns what a window must reach now. In the ramp less is enough: the downstream was away a moment ago.
func (s *cell) bar(now time.Time) bar {
	config := &s.breaker.config
	b := bar{
		share: 1 - (1-config.FailureRate)/float64(int(1)<<s.flaps), messages: config.MinMessages,
		inARow:     config.MinMessages,
		awayInARow: awayInARow, window: config.Window, lone: now.Before(s.loneUntil),
	}
	if s.state == Ramping {
		b.messages = (config.MinMessages + 1) / 2
		b.inARow = min(minAttempts<<s.flaps, config.MinMessages)
		if s.ramp.passed < minRamp {
			b.awayInARow = 1
		}
	}
	b.inARow = max(b.inARow, s.window.rare(false))
	if b.rareAway = s.window.rare(true); b.rareAway > 0 {
		b.awayInARow = awayInARow
	}
	return b
}

// open begins an outage, or goes on with it after a ramp that failed. d is what is known of the error's kind, or nil if
// the error says away.
func (s *cell) open(reason string, cause error, verdict classify.Verdict, d *doubt, now time.Time) {
	s.confirmed, s.named, s.sacrificed, s.unproven = false, false, nil, now
	if s.state == Closed {
		if now.Sub(s.closedAt) > s.breaker.config.Window {
			s.wait = 0
		}
	}
	if reason == ReasonShare {
		if s.state == Ramping || !s.closedAt.IsZero() && now.Sub(s.closedAt) <= flapsWithin {
			s.flaps = min(s.flaps+1, maxFlaps)
		}
		s.sharedAt = now
	}
	s.confirmed = s.window.distinct >= minWitnesses || reason == ReasonShare && s.window.failed >= minWitnesses
	s.reason, s.cause = reason, cause
	s.opened++
	s.become(Open, now)
	s.heldBy(d, now)
	s.next(verdict, now)
}

// next says when the next probe is due: after twice the wait before, drawn from its upper half, and not before a
// retry-after. An error that does not say away has its wait for as long as it may hold the cell.
func (s *cell) next(verdict classify.Verdict, now time.Time) {
	config := &s.breaker.config
	s.wait = min(max(2*s.wait, config.Probe), config.MaxProbe)
	pause := s.wait/2 + time.Duration(rand.Int64N(int64(s.wait/2)+1))
	longest := maxRetryAfter
	if s.holder != nil {
		longest = min(longest, s.rest(s.holder, now))
	}
	s.due = now.Add(max(pause, min(verdict.RetryAfter, longest)))
	s.arm(s.due, now)
}

// close ends the outage, and lets all messages pass that wait.
func (s *cell) close(now time.Time) {
	s.become(Closed, now)
	s.closedAt, s.cause = now, nil
	s.letGo(s.queue.Len())
	s.openValves()
	if s.late = !now.Before(s.failedAt.Add(s.breaker.config.Window)); s.late {
		s.arm(now.Add(calm), now)
	} else {
		s.arm(s.quiet(), now)
	}
}

// status is the state for Health.
func (s *cell) status() Status {
	status := Status{Handler: s.handler, Scope: s.scope, State: s.state, Since: s.window.since, Waiting: s.waiting()}
	if s.state != Closed {
		status.Since, status.Reason = s.began, s.reason
		if s.cause != nil {
			status.Cause = s.breaker.cause(s.cause).Error()
		}
	}
	if s.state == Open {
		status.NextProbe = s.due
	}
	return status
}

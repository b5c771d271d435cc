package breaker

import (
	"math"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/timing/recent"
)

const (
	// remembered is how long after its last failure a message that fails again counts as new.
	remembered = 10 * time.Minute
	// apart is how long after a failure the next one begins a new run.
	apart = 2 * time.Minute
	// minAttempts and minUnknown are what must fail before a time without a success counts as an outage.
	minAttempts, minUnknown = 5, 3
	// minMixed and minMixedShare are what must fail among others that succeed to explain failures in a row, and
	// maxMixed is the number of messages of which that is known. chance is how likely a row may be that is no outage.
	minMixed, minMixedShare, maxMixed, chance = 10, 0.1, 2000, 1e-4
	// minWitnesses is the number of messages that confirm an outage.
	minWitnesses = 3
)

// window counts messages, and not attempts, of one handler and scope. It keeps nothing while nothing fails.
type window struct {
	messages  recent.Memory[record]
	successes uint64
	latest    time.Time // failure

	// The window counts each message once. A message that succeeds later counts as passed.
	number         uint64
	began          time.Time
	failed, passed int

	// A run is what failed since the last success.
	run                                uint64
	since                              time.Time
	attempts, transient, distinct, row int
	away                               int // of distinct, those whose errors say that the downstream is away

	// What failed among others that succeeded, of it what said away, and what succeeded. An outage does not add to it.
	among, amongAway, others int
}

// record is what is remembered of a message that failed.
type record struct {
	failures    int
	seen        uint64 // successes of others, when it failed
	number, run uint64 // of the window and the run that count it
	away        uint64 // the run that counts it as away
}

func newWindow() window { return window{messages: recent.For[record](remembered)} }

// note counts a failure. It reports whether the message itself is to blame: other messages succeeded since it last
// failed.
func (e *window) note(of recent.Message, verdict classify.Verdict, window time.Duration, ramping bool,
	now time.Time) (blamed bool) {
	one := e.messages.Note(of, now)
	blamed = one.failures > 0 && e.successes > one.seen
	one.failures++
	one.seen = e.successes
	switch rest := now.Sub(e.began) - window; {
	case e.number == 0 || rest > window:
		e.begin(now)
	case rest > 0 || e.failed >= recent.Most: // a window that began with nothing would make much of the next few messages
		e.number++
		e.began, e.failed, e.passed = now, e.failed/2, e.passed/2
	}
	if e.attempts == 0 || now.Sub(e.latest) > apart {
		e.newRun(now)
	}
	// what failed before the ramp waits at the head of the queue, and would be most of what is counted
	if !blamed || !ramping {
		if one.number != e.number {
			one.number = e.number
			e.failed++
		}
		if one.run != e.run {
			one.run = e.run
			e.distinct++
		}
	}
	e.latest = now
	e.attempts++
	if verdict.Class == classify.ClassTransient {
		e.transient++
	}
	if verdict.Away && !blamed {
		e.row++
	}
	if verdict.Away && one.away != e.run {
		one.away = e.run
		e.away++
	}
	return blamed
}

// succeeded counts a success. outage reports whether it is the first one after an outage.
func (e *window) succeeded(of recent.Message, outage bool) {
	if !outage {
		e.among += e.distinct
		e.amongAway += e.away
	}
	e.passedBy(1)
	e.attempts, e.transient, e.distinct, e.row, e.away = 0, 0, 0, 0, 0
	if one := e.messages.Get(of); one != nil {
		if one.number == e.number {
			e.failed = max(e.failed-1, 0)
		}
		e.messages.Forget(of)
	}
}

// passedBy counts n successes of messages that did not fail before.
func (e *window) passedBy(n uint64) {
	e.successes += n
	e.passed += int(n)
	for n = min(n, 64*maxMixed); n > 0; {
		some := min(int(n), max(maxMixed+1-e.among-e.others, 1))
		n -= uint64(some)
		if e.others += some; e.among+e.others > maxMixed {
			e.among, e.amongAway, e.others = e.among/2, e.amongAway/2, e.others/2
		}
	}
}

// mixed returns the share of messages that fail among others that succeed, or 0 if it is small: then failures in a row
// are an outage. Of away failures only such failures are the measure: unrelated errors do not explain a refused
// connection.
func (e *window) mixed(away bool) float64 {
	among := e.among
	if away {
		among = e.amongAway
	}
	if all := among + e.others; all >= minMixed && float64(among) >= minMixedShare*float64(all) {
		return float64(among) / float64(all)
	}
	return 0
}

// rare returns how many failures in a row are no chance.
func (e *window) rare(away bool) int {
	if q := e.mixed(away); q > 0 {
		return int(math.Ceil(math.Log(chance) / math.Log(min(q, 0.9))))
	}
	return 0
}

func (e *window) begin(now time.Time) {
	e.number++
	e.began, e.failed, e.passed = now, 0, 0
}

func (e *window) newRun(now time.Time) {
	e.run++
	e.since = now
	e.attempts, e.transient, e.distinct, e.row, e.away = 0, 0, 0, 0, 0
}

// failedInRun reports whether a message is one of those that failed since the last success.
func (e *window) failedInRun(of recent.Message) bool {
	one := e.messages.Get(of)
	return one != nil && one.run == e.run
}

// saidAway reports whether the error of a message said away since the last success.
func (e *window) saidAway(of recent.Message) bool {
	one := e.messages.Get(of)
	return one != nil && one.away != 0 && one.away == e.run
}

// bar is what a window must reach to open the breaker.
type bar struct {
	share      float64
	messages   int // that share is of
	inARow     int // messages with nothing between them
	awayInARow int // errors that say so
	window     time.Duration
	rareAway   int  // messages that must say so in a row, because many do among others that succeed
	lone       bool // one message alone does not open the breaker
}

// reason returns why the breaker must open, or "".
func (e *window) reason(b bar, now time.Time) string {
	lone := b.lone && e.distinct == 1
	switch all := e.failed + e.passed; {
	case e.row >= b.awayInARow && e.away >= b.rareAway && !lone:
		return ReasonAway
	case all >= b.messages && float64(e.failed) >= b.share*float64(all), e.distinct >= b.inARow:
		return ReasonShare
	case now.Sub(e.since) >= b.window && !lone &&
		(e.transient >= minAttempts || e.attempts >= minAttempts && e.distinct >= minUnknown):
		return ReasonNothing
	}
	return ""
}

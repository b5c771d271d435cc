package breaker

import (
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/hold/recent"
)

const (
	// remembered is how long after its last failure a message that fails again counts as new.
	remembered = 10 * time.Minute
	// minAttempts is the number of transient failures that open the breaker if nothing succeeds for a window. Of unknown
	// errors it takes minWitnesses messages: one message can fail for as long by itself.
	minAttempts = 5
	// minWitnesses is the number of messages that confirm an outage.
	minWitnesses = 3
	// minMixed and mixedShare say when errors that say unavailable are usual among successes: at least so many in a
	// window, and one in mixedShare.
	minMixed, mixedShare = 10, 10
)

// window counts messages, and not attempts, of one handler and scope. It keeps nothing while nothing fails.
type window struct {
	messages  recent.Memory[record]
	successes uint64

	// The window counts each message once. A message that succeeds later counts as passed.
	number         uint64
	began          time.Time
	failed, passed int
	among          int // failures that say unavailable, in runs that a success ended; an outage does not add to it

	// A run is what failed since the last success.
	run                 uint64
	since               time.Time
	transient, distinct int
	row                 int // failures that say unavailable, in a row
}

// record is what is remembered of a message that failed.
type record struct {
	failed      bool
	seen        uint64 // successes of others, when it failed
	number, run uint64 // of the window and the run that count it
	unavailable uint64 // the run that counts it as away
}

func newWindow() window { return window{messages: recent.For[record](remembered), run: 1} }

// note counts a failure. It reports whether the message itself is to blame: other messages succeeded since it last
// failed.
func (w *window) note(of recent.Message, verdict classify.Verdict, window time.Duration, now time.Time) (blamed bool) {
	one := w.messages.Note(of, now)
	blamed = one.failed && w.successes > one.seen
	one.failed, one.seen = true, w.successes
	switch rest := now.Sub(w.began) - window; {
	case w.number == 0 || rest > window:
		w.begin(now)
	case rest > 0 || w.failed >= recent.Most: // a window that began with nothing would make much of the next few messages
		w.number++
		w.began, w.failed, w.passed, w.among = now, w.failed/2, w.passed/2, w.among/2
	}
	if w.distinct == 0 {
		w.since = now
	}
	if one.number != w.number {
		one.number = w.number
		w.failed++
	}
	if one.run != w.run {
		one.run = w.run
		w.distinct++
	}
	if verdict.Class == classify.ClassTransient {
		w.transient++
	}
	if verdict.Unavailable && !blamed {
		w.row++
	}
	if verdict.Unavailable {
		one.unavailable = w.run
	}
	return blamed
}

// succeeded counts a success. outage reports whether it is the first one after an outage.
func (w *window) succeeded(of recent.Message, outage bool) {
	if !outage {
		w.among += w.row
	}
	w.successes++
	w.passed++
	w.newRun()
	if one := w.messages.Get(of); one != nil {
		if one.number == w.number {
			w.failed = max(w.failed-1, 0)
		}
		w.messages.Forget(of)
	}
}

// mixed reports whether errors that say unavailable are usual among successes: then some in a row are no outage.
func (w *window) mixed() bool {
	return w.among >= minMixed && w.among*mixedShare >= w.among+w.passed
}

func (w *window) begin(now time.Time) {
	w.number++
	w.began, w.failed, w.passed, w.among = now, 0, 0, 0
}

func (w *window) newRun() {
	if w.distinct > 0 {
		w.run++
	}
	w.transient, w.distinct, w.row = 0, 0, 0
}

// saidUnavailable reports whether the error of a message said unavailable since the last success.
func (w *window) saidUnavailable(of recent.Message) bool {
	one := w.messages.Get(of)
	return one != nil && one.unavailable != 0 && one.unavailable == w.run
}

// reason returns why the breaker must open, or "". row is how many errors in a row that say unavailable are enough.
func (w *window) reason(config *Config, row int, now time.Time) string {
	if w.mixed() {
		row = config.MinMessages
	}
	switch all := w.failed + w.passed; {
	case w.row >= row:
		return ReasonUnavailable
	case all >= config.MinMessages && float64(w.failed) >= config.FailureRate*float64(all),
		w.distinct >= config.MinMessages:
		return ReasonShare
	case w.distinct > 0 && now.Sub(w.since) >= config.Window &&
		(w.transient >= minAttempts || w.distinct >= minWitnesses):
		return ReasonNothing
	}
	return ""
}

// doubt is for how long errors that do not say unavailable kept a circuit open. Such errors can be the messages' own,
// so they hold messages for Config.Doubt in all. After that they say nothing about other messages.
type doubt struct {
	spent   time.Duration
	holding time.Time // since when such an error keeps the circuit open, or zero
	over    bool      // the time is used up
	passed  int       // successes since the latest such error
}

// hold notes whether such an error keeps the circuit open from now on.
func (d *doubt) hold(holds bool, now time.Time) {
	if !d.holding.IsZero() {
		d.spent += now.Sub(d.holding)
	}
	if d.holding = (time.Time{}); holds {
		d.holding = now
	}
}

// rest returns how long such errors may still hold messages.
func (d *doubt) rest(most time.Duration, now time.Time) time.Duration {
	rest := most - d.spent
	if !d.holding.IsZero() {
		rest -= now.Sub(d.holding)
	}
	return rest
}

// succeeded gives the time back after as many successes in a row as failures would open the breaker.
func (d *doubt) succeeded(config *Config) {
	if d.passed++; d.passed >= config.MinMessages {
		*d = doubt{}
	}
}

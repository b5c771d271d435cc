package delayed

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/internal/timing"
)

const (
	// grace is for what must still be written when the relay is told to stop.
	grace = 5 * time.Second
	// maxRenewals is how many leases one call of a publisher may take.
	maxRenewals = 10
	// flushEvery bounds what is published again after a crash where publishing takes its time.
	flushEvery = 250 * time.Millisecond
	// logged is how many bytes of a name go into logs and errors.
	logged = 200

	firstPause, maxPause       = 100 * time.Millisecond, 5 * time.Second // of a database that fails
	firstContended, shortSleep = 5 * time.Millisecond, 200 * time.Microsecond
)

// worker is one run of a relay.
type worker struct {
	from   source
	topics topics
	fails  int // of the database, in a row
	misses int // how often in a row something was due, and nothing could be taken
}

// round moves what is due and returns for how long there is nothing to do.
func (w *worker) round(ctx context.Context) time.Duration {
	poll := w.from.config.Poll
	passed, tryIn := w.topics.passed(time.Now())
	in, ok, err := w.from.store.next(ctx, poll, passed)
	if err == nil && ok && in <= 0 {
		err = w.moveAll(ctx)
		if passed, tryIn = w.topics.passed(time.Now()); err == nil && w.misses == 0 {
			in, ok, err = w.from.store.next(ctx, poll, passed)
		}
	}
	if err != nil {
		return w.failed(ctx, err)
	}
	w.recovered()
	most := max(min(poll, tryIn), shortSleep)
	switch {
	case w.misses > 0: // others have it, for the moment
		return min(doubled(firstContended, w.misses, poll), most)
	case !ok:
		return most
	}
	return min(max(in, shortSleep), most)
}

// moveAll takes and publishes for as long as batches are full.
func (w *worker) moveAll(ctx context.Context) error {
	for first := true; ctx.Err() == nil; first = false {
		under, cancel := lingering(ctx)
		before := time.Now()
		passed, _ := w.topics.passed(before)
		taken, err := w.from.store.take(under, w.from.config.Batch, w.from.config.Lease, passed)
		if err != nil {
			cancel()
			return err
		}
		w.recovered()
		if w.misses++; !first || len(taken.rows) > 0 || taken.more {
			w.misses = 0
		}
		m := &move{worker: w, ctx: under, stop: ctx, token: taken.token, renewed: before, flushed: before}
		m.run(taken.rows)
		cancel()
		if !taken.more {
			return nil
		}
	}
	return nil
}

// lingering returns a context that lasts a little longer than ctx.
func lingering(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-longer.Done():
		}
	})
	return longer, func() { stop(); cancel() }
}

// failed logs the first failure of a row, and returns for how long to leave the database alone.
func (w *worker) failed(ctx context.Context, err error) time.Duration {
	if ctx.Err() != nil {
		return 0
	}
	if w.fails == 0 {
		eventDelayStoreUnavailable.Write(w.from.config.Logger, err, nil)
	}
	pause := doubled(firstPause, w.fails, maxPause)
	w.fails++
	timing.Wait(ctx, pause) // also if a message is put meanwhile
	return 0
}

func (w *worker) recovered() {
	if w.fails > 0 {
		eventDelayStoreBack.Write(w.from.config.Logger, nil, nil)
	}
	w.fails = 0
}

// alarm wakes a relay if a message is due before the relay meant to look again. It knows when, and not which: a message
// that is missed here is found by the next look.
type alarm struct {
	timer *time.Timer
	mu    sync.Mutex
	until time.Time // when the earliest is due that the last look may have missed, or when to look; or zero
}

func newAlarm() *alarm { return &alarm{timer: time.NewTimer(0)} }

// reset comes before the database is asked: what is brought forward from now on counts in the next sleep.
func (a *alarm) reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.until = time.Time{}
}

// bringForward makes the alarm go off when a message is due, if that is earlier.
func (a *alarm) bringForward(due time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.until.IsZero() || due.Before(a.until) {
		a.until = due
		a.timer.Reset(time.Until(due))
	}
}

// sleep waits for d, or until a message is due that was announced since reset, or for the end of ctx.
func (a *alarm) sleep(ctx context.Context, d time.Duration) {
	a.bringForward(time.Now().Add(d))
	select {
	case <-ctx.Done():
	case <-a.timer.C:
	}
}

// alarms are those of a store's relays in this process.
type alarms struct {
	mu  sync.Mutex
	all map[*alarm]struct{}
}

// add returns what takes the alarm away.
func (a *alarms) add(one *alarm) (unavailable func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = make(map[*alarm]struct{})
	}
	a.all[one] = struct{}{}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.all, one)
	}
}

func (a *alarms) bringForward(due time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for one := range a.all {
		one.bringForward(due)
	}
}

const (
	// maxRefusals is how many messages in a row a topic may refuse before it is believed to be down, and not the
	// messages.
	maxRefusals = 3
	// maxTopics bounds what is remembered: names of topics may come from messages.
	maxTopics = 1000

	firstTopicWait, maxTopicWait = 100 * time.Millisecond, 30 * time.Second
	firstRowWait, maxRowWait     = 200 * time.Millisecond, time.Minute
)

// topics remembers those that refused messages.
type topics map[string]*topic

type topic struct {
	refusals int       // since it last took a message
	careful  int       // how many messages are to be published one by one, to find those that are refused
	until    time.Time // nothing is published before
}

// waits reports whether nothing is published to a topic for a while.
func (t topics) waits(name string, now time.Time) bool {
	one := t[name]
	return one != nil && one.until.After(now)
}

// passed returns the topics whose messages are left alone since they refuse, and how long it is until one may be tried
// again.
func (t topics) passed(now time.Time) (all []string, in time.Duration) {
	in = maxTopicWait
	for name, one := range t {
		if wait := one.until.Sub(now); wait > 0 {
			all, in = append(all, name), min(in, wait)
		}
	}
	slices.Sort(all) // else there would be a statement for each order
	return all, in
}

// atOnce is how many of n messages can go in one call.
func (t topics) atOnce(name string, n int) int {
	if t[name] != nil {
		return 1
	}
	return n
}

// took notes that the topic took messages.
func (t topics) took(name string) {
	if one := t[name]; one != nil {
		one.refusals = 0
		if one.careful--; one.careful <= 0 {
			delete(t, name)
		}
	}
}

// refused notes that the topic refused n messages in one call. One message may be refused for what it is; several are
// tried one by one after a short wait.
func (t topics) refused(name string, n int, now time.Time) {
	one := t[name]
	if one == nil {
		if len(t) >= maxTopics {
			clear(t) // all may be tried again
		}
		one = &topic{}
		t[name] = one
	}
	one.careful = max(one.careful, n)
	one.refusals++
	if over := one.refusals - maxRefusals; n > 1 || over >= 0 {
		one.until = now.Add(doubled(firstTopicWait, max(0, over), maxTopicWait))
	}
}

// doubled is first, doubled n times, at most most, and up to a tenth less, so that relays do not go in step.
func doubled(first time.Duration, n int, most time.Duration) time.Duration {
	d := most
	if n = max(0, n); n < 30 { // it may come from a row
		d = min(first<<n, most)
	}
	return d - rand.N(d/10)
}

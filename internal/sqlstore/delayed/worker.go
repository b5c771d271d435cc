package delayed

import (
	"context"
	"time"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing/wait"
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
	pass   pass
	fails  int // of the database, in a row
	misses int // how often in a row something was due, and nothing could be taken
}

// round moves what is due and returns for how long there is nothing to do.
func (w *worker) round(ctx context.Context) time.Duration {
	in, ok, err := w.look(ctx)
	probes, probeIn := w.pass.probes(w.topics, time.Now())
	if err == nil && (ok && in <= 0 || len(probes) > 0) {
		err = w.moveAll(ctx)
		if err == nil && w.misses == 0 {
			in, ok, err = w.look(ctx)
		}
		_, probeIn = w.pass.probes(w.topics, time.Now())
	}
	if err != nil {
		return w.failed(ctx, err)
	}
	w.recovered()
	most := min(w.from.config.Poll, max(probeIn, shortSleep))
	switch {
	case w.misses > 0: // others have it, for the moment
		return min(doubled(firstContended, w.misses, w.from.config.Poll), most)
	case !ok:
		return most
	}
	return min(max(in, shortSleep), most)
}

// look asks for the next row, from the start where that is cheap.
func (w *worker) look(ctx context.Context) (in time.Duration, ok bool, err error) {
	begun := time.Now()
	w.pass.recovered(w.topics, begun)
	if w.topics.anyRefuses(begun) {
		return w.from.store.nextAround(ctx, &w.pass, w.topics, w.from.config.Poll)
	}
	from, full := w.pass.begin(begun)
	in, at, ok, err := w.from.store.next(ctx, from, w.from.config.Poll)
	if err != nil || !full {
		return in, ok, err
	}
	cost := time.Since(begun)
	if cost >= dear && (!ok || in > -margin) { // else nothing is in the margin
		if at, err = w.from.store.here(ctx); err == nil {
			at.ready -= margin.Microseconds()
		}
	} else {
		at = at.before()
	}
	w.pass.looked(begun, cost, at)
	return in, ok, err
}

// moveAll takes and publishes for as long as batches are full.
func (w *worker) moveAll(ctx context.Context) error {
	for first := true; ctx.Err() == nil; first = false {
		under, cancel := lingering(ctx)
		before := time.Now()
		taken, err := w.take(under, before)
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

func (w *worker) take(ctx context.Context, now time.Time) (batch, error) {
	w.pass.recovered(w.topics, now)
	if w.topics.anyRefuses(now) {
		return w.from.store.takeAround(ctx, w.from.config.Batch, w.from.config.Lease, &w.pass, w.topics, now)
	}
	from, _ := w.pass.begin(now)
	return w.from.store.take(ctx, w.from.config.Batch, w.from.config.Lease, from)
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
		logging.DelayStoreAway.Write(w.from.config.Logger, err, nil)
	}
	pause := doubled(firstPause, w.fails, maxPause)
	w.fails++
	wait.For(ctx, pause) // also if a message is put meanwhile
	return 0
}

func (w *worker) recovered() {
	if w.fails > 0 {
		logging.DelayStoreBack.Write(w.from.config.Logger, nil, nil)
	}
	w.fails = 0
}

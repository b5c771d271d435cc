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

	// dear is a look that reads many rows of topics that refuse, or of what an old snapshot keeps. Then the relay leaves
	// the database alone for five times as long.
	dear = 10 * time.Millisecond

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
	passed, probes, tryIn := w.topics.passed(time.Now())
	begun := time.Now()
	in, ok, err := w.from.store.next(ctx, poll, passed)
	cost := time.Since(begun)
	if err == nil && (ok && in <= 0 || len(probes) > 0) {
		err = w.moveAll(ctx)
		if passed, _, tryIn = w.topics.passed(time.Now()); err == nil && w.misses == 0 {
			in, ok, err = w.from.store.next(ctx, poll, passed)
		}
	}
	if err != nil {
		return w.failed(ctx, err)
	}
	w.recovered()
	least := shortSleep
	if cost > dear {
		least = 5 * cost
	}
	most := max(min(poll, tryIn), least)
	switch {
	case w.misses > 0: // others have it, for the moment
		return min(doubled(firstContended, w.misses, poll), most)
	case !ok:
		return most
	}
	return min(max(in, least), most)
}

// moveAll takes and publishes for as long as batches are full.
func (w *worker) moveAll(ctx context.Context) error {
	for first := true; ctx.Err() == nil; first = false {
		under, cancel := lingering(ctx)
		before := time.Now()
		passed, probes, _ := w.topics.passed(before)
		taken, err := w.from.store.take(under, w.from.config.Batch, w.from.config.Lease, passed, probes)
		if err != nil {
			cancel()
			return err
		}
		w.recovered()
		for _, topic := range taken.none {
			w.topics.empty(topic, before.Add(w.from.config.Poll))
		}
		if w.misses++; !first || len(taken.rows) > 0 || taken.more || len(probes) > 0 {
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

package redrive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/sqlstore/batcher"
	"github.com/watermill-spillway/spillway/internal/timing/wait"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const (
	// maxBatch is how many letters are claimed at a time; the Store bounds their bytes. A drain has two batches in
	// hand: the one that it publishes, and the next one.
	maxBatch = 500
	// maxWrite bounds what is still written after the drain's context ended.
	maxWrite = 30 * time.Second
	// maxRefusals is how many letters in a row a publisher may refuse before the drain believes that it is down.
	maxRefusals = 3
	// firstPause is the wait before letters are looked for again that others have locked. It doubles up to a second.
	firstPause = 5 * time.Millisecond
)

// drain is one run over a store.
type drain struct {
	rules
	store  *letters.Store
	config DrainConfig
	cancel context.CancelFunc
	marks  *batcher.Batcher[marking]
	// unmarked has a place for each letter that is being published, or is published and not marked.
	unmarked chan struct{}
	marking  sync.WaitGroup // batches whose last letters are not marked yet

	mu       sync.Mutex // guards what follows
	report   Report
	refusals int   // in a row
	err      error // what ended the drain
	// considered are the letters that this drain is through with and that its filter chooses still, or again: those
	// whose lease was lost, and all of them where Filter.Statuses has the new status.
	considered map[int64]struct{}
}

func (d *drain) run(parent context.Context) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	d.cancel, d.marks = cancel, d.newMarks()
	d.unmarked = make(chan struct{}, inside.Places(d.Concurrency, inside.MaxUnmarked))
	d.passes(ctx)
	if err := parent.Err(); err != nil && !errors.Is(d.err, err) {
		d.err = errors.Join(err, d.err)
	}
	if d.err != nil {
		return fmt.Errorf("redrive: drain %s ended early: %w", d.id, d.err)
	}
	return nil
}

// passes goes over the letters until a pass finds none. One pass is not enough: letters that another transaction was
// writing were passed over.
func (d *drain) passes(ctx context.Context) {
	pause, idleSince := firstPause, time.Now()
	for ctx.Err() == nil {
		before := d.report.Taken
		found, err := d.pass(ctx)
		switch {
		case err != nil:
			d.stop(err)
			return
		case found == 0:
			return
		case d.report.Taken > before:
			pause, idleSince = firstPause, time.Now()
		case time.Since(idleSince) > maxWrite:
			d.stop(fmt.Errorf("%d letters have been locked by other transactions for %s: end those, and drain again",
				found,
				maxWrite))
			return
		default:
			wait.For(ctx, pause)
			pause = min(2*pause, time.Second)
		}
	}
}

// pass goes over the letters once, in the order of Seq, and returns how many it found that were not considered before.
// The next letters are claimed while the ones before are published.
func (d *drain) pass(ctx context.Context) (found int, err error) {
	batches := make(chan *batch)
	var fetching sync.WaitGroup
	fetching.Go(func() {
		defer close(batches)
		found, err = d.fetch(ctx, batches)
	})
	for b := range batches {
		d.work(ctx, b)
	}
	fetching.Wait()
	d.marking.Wait()
	return found, err
}

func (d *drain) fetch(ctx context.Context, to chan<- *batch) (found int, err error) {
	filter := d.Filter
	for n := d.batch(); n > 0 && ctx.Err() == nil; n = d.batch() {
		chosen, err := d.store.Inside().Free(ctx, filter, n)
		if err != nil || len(chosen) == 0 {
			return found, err
		}
		filter.After = chosen[len(chosen)-1]
		chosen = slices.DeleteFunc(chosen, d.isConsidered)
		if len(chosen) == 0 {
			continue
		}
		found += len(chosen)
		c, err := d.store.Inside().Claim(ctx, filter, chosen, d.config.lease)
		if err != nil {
			return found, err
		}
		if len(c.Letters) == 0 {
			continue
		}
		b := newBatch(c)
		d.taken(len(c.Letters))
		b.renewals.Go(func() { d.renewing(b) })
		select {
		case to <- b:
		case <-ctx.Done():
			d.giveBack(b)
			b.end()
		}
	}
	return 0, nil // Max letters are taken, or the drain has ended
}

// taken counts letters that the drain has in hand.
func (d *drain) taken(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.report.Taken += n
}

func (d *drain) isConsidered(seq int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, is := d.considered[seq]
	return is
}

// batch is how many letters to take next. At a slow rate it is few, or their leases would end before their turn.
func (d *drain) batch() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := maxBatch
	if d.Rate > 0 {
		n = int(min(maxBatch, max(1, d.Rate*d.config.lease.Seconds()/4)))
	}
	if d.config.Max > 0 {
		n = min(n, d.config.Max-d.report.Taken)
	}
	return n
}

// work brings a batch of letters back. Those that were not begun are released when ctx ends, also while a publisher is
// stuck with others. The last ones may be marked beside the next batch.
func (d *drain) work(ctx context.Context, b *batch) {
	released := make(chan struct{})
	running := context.AfterFunc(ctx, func() { defer close(released); d.giveBack(b) })
	var workers sync.WaitGroup
	for range min(d.Concurrency, len(b.claim.Letters)) {
		workers.Go(func() {
			for ctx.Err() == nil {
				l, ok := b.begin()
				if !ok {
					return
				}
				d.one(ctx, b, l)
			}
		})
	}
	workers.Wait()
	if !running() {
		<-released
	}
	d.giveBack(b)
	d.marking.Go(func() { b.marking.Wait(); b.end() })
}

// giveBack releases the letters that were not begun.
func (d *drain) giveBack(b *batch) {
	rest := b.rest()
	if len(rest) == 0 {
		return
	}
	d.release(b, rest...)
	d.mu.Lock()
	d.report.Taken -= len(rest)
	d.mu.Unlock()
}

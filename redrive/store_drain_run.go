package redrive

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/poison"
)

const (
	maxBatch = 50 // letters in hand at a time: with payloads of megabytes each they all are in memory
	// maxRefusals is how many letters in a row a publisher may refuse before the drain believes that it is down.
	maxRefusals = 3
)

// drain is one run over a store.
type drain struct {
	rules
	store  *Store
	live   message.Publisher
	config DrainConfig
	cancel context.CancelFunc

	mu       sync.Mutex // guards what follows
	report   Report
	refusals int   // in a row
	err      error // what ended the drain
}

func (d *drain) run(parent context.Context) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	d.cancel = cancel
	for filter := d.config.Filter; ctx.Err() == nil; {
		n := d.batch()
		if n <= 0 {
			break
		}
		taken, err := d.store.Take(ctx, filter, d.config.Lease, n)
		if err != nil {
			d.stop(err)
			break
		}
		if len(taken) == 0 {
			break
		}
		filter.After = taken[len(taken)-1].Seq // whatever becomes of these, they are not taken twice
		d.work(ctx, taken)
	}
	if err := parent.Err(); err != nil && !errors.Is(d.err, err) {
		d.err = errors.Join(err, d.err)
	}
	if d.err != nil {
		return fmt.Errorf("redrive: drain %s ended early: %w", d.id, d.err)
	}
	return nil
}

// batch is how many letters to take next. At a slow rate it is few, or their leases would end before their turn.
func (d *drain) batch() int {
	n := maxBatch
	if d.rate > 0 {
		n = int(min(maxBatch, max(1, d.rate*d.config.Lease.Seconds()/4)))
	}
	if d.config.Max > 0 {
		n = min(n, d.config.Max-d.report.Taken)
	}
	return n
}

// work brings a batch back and releases what was not begun.
func (d *drain) work(ctx context.Context, batch []Taken) {
	d.report.Taken += len(batch)
	var begun atomic.Int64
	var workers sync.WaitGroup
	for range min(d.concurrency, len(batch)) {
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(begun.Add(1)) - 1
				if i >= len(batch) {
					return
				}
				d.one(ctx, batch[i])
			}
		})
	}
	workers.Wait()
	if n := int(begun.Load()); n < len(batch) {
		d.release(batch[n:]...)
		d.report.Taken -= len(batch) - n
	}
}

var errInterrupted = errors.New("the publisher called runtime.Goexit")

// one settles a letter: marked, or released.
func (d *drain) one(ctx context.Context, t Taken) {
	returned := false
	defer func() {
		if !returned { // the goroutine is lost, the letter is not
			d.failed(t, errInterrupted)
			d.stop(errInterrupted) // the rest of the batch was not considered, and must not pass for done
		}
	}()
	d.settle(ctx, t)
	returned = true
}

func (d *drain) settle(ctx context.Context, t Taken) {
	if d.spent(t.Letter) {
		if d.mark(t, StatusQuarantined, classify.ReasonMaxRedrives, &d.report.Quarantined) {
			d.onQuarantine(ctx, t.Letter)
		}
		return
	}
	topic, err := d.target(t.Letter)
	if err != nil {
		d.logger.Error("A letter is not redriven", err, fields(t.Letter, topic))
		if d.mark(t, StatusRefused, whyNotAllowed, &d.report.Refused) {
			d.onRefused(ctx, t.Letter, topic)
		}
		return
	}
	if err := d.wait(ctx); err != nil {
		d.release(t)
		d.stop(err)
		return
	}
	if time.Until(t.Until) < d.config.Lease/2 {
		if err := d.underGrace(func(ctx context.Context) error { return d.store.extend(ctx, &t, d.config.Lease) }); err != nil {
			d.unmarked(err)
			return
		}
	}
	if err := d.redrive(ctx, d.live, t.Letter, topic); err != nil {
		if ctx.Err() != nil { // refused while everything ends: that is nobody's failure
			d.release(t)
			return
		}
		d.failed(t, err)
		return
	}
	d.mu.Lock()
	d.refusals = 0
	d.mu.Unlock()
	d.mark(t, StatusRedriven, "", &d.report.Redriven)
	d.onRedrive(ctx, t.Letter, topic)
}

// mark counts what happened to the letter and records it. It tells whether the record stands.
func (d *drain) mark(t Taken, status Status, why string, count *int) bool {
	err := d.underGrace(func(ctx context.Context) error {
		return d.store.mark(ctx, t, status, Marked{By: d.by, Why: why, RedriveID: d.id})
	})
	if err == nil || status == StatusRedriven { // published it is, marked or not
		d.mu.Lock()
		*count++
		d.mu.Unlock()
	}
	if err != nil {
		d.unmarked(err)
	}
	return err == nil
}

// unmarked handles a letter that could not be marked. One that somebody else has now is theirs; any other error is of
// the database, and to publish on without marking would be to publish everything twice.
func (d *drain) unmarked(err error) {
	if errors.Is(err, ErrLeaseLost) {
		d.logger.Info("A letter was taken over, or arrived again, while it was worked on", map[string]any{"error": err.Error()})
		d.mu.Lock()
		d.report.LeasesLost++
		d.mu.Unlock()
		return
	}
	d.stop(err)
}

// failed puts the letter back behind all others, so that one that is refused for good does not stand in the way of the
// next drain too. A refusal for size is the letter's own and says nothing of the publisher.
func (d *drain) failed(t Taken, err error) {
	if postponed := d.underGrace(func(ctx context.Context) error { return d.store.postpone(ctx, t) }); postponed != nil {
		d.unmarked(postponed)
	}
	d.mu.Lock()
	d.report.Failed++
	if !poison.IsTooLarge(err) {
		d.refusals++
	}
	over := d.refusals >= maxRefusals
	d.mu.Unlock()
	if over {
		d.stop(fmt.Errorf("the publisher refused %d letters in a row: %w", maxRefusals, err))
	}
}

func (d *drain) release(letters ...Taken) {
	err := d.underGrace(func(ctx context.Context) error { return d.store.Release(ctx, letters...) })
	if err != nil {
		d.logger.Error("Letters were not released; they are free again when their lease is over", err, nil)
	}
}

// underGrace runs what must still be written after the drain's context ended.
func (d *drain) underGrace(work func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), maxWrite)
	defer cancel()
	return work(ctx)
}

// stop ends the drain with the first error.
func (d *drain) stop(err error) {
	d.mu.Lock()
	if d.err == nil {
		d.err = err
	}
	d.mu.Unlock()
	d.cancel()
}

package redrive

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

var errInterrupted = errors.New("the publisher called runtime.Goexit")

// one settles a letter: marked, or released.
func (d *drain) one(ctx context.Context, b *batch, l letters.Letter) {
	defer b.done(l)
	returned := false
	defer func() {
		if !returned { // the goroutine is lost, the letter is not
			d.failed(b, l, errInterrupted)
			d.stop(errInterrupted) // the rest of the batch was not considered, and must not pass for done
		}
	}()
	d.settle(ctx, b, l)
	returned = true
}

func (d *drain) settle(ctx context.Context, b *batch, l letters.Letter) {
	of := l.Letter
	if d.spent(of) {
		if d.mark(b, l, letters.StatusQuarantined, classify.ReasonMaxRedrives, "", &d.report.Quarantined) {
			d.onQuarantine(ctx, of)
		}
		return
	}
	topic, err := d.target(of)
	if err != nil {
		logging.RedriveRefused.Write(d.Logger, err, fields(of, topic))
		d.unreadable(b, l, topic)
		return
	}
	opened, err := d.open(ctx, l)
	if err != nil {
		d.closed(ctx, b, l, topic, err)
		return
	}
	if err := d.wait(ctx); err != nil {
		d.release(b, l)
		d.stop(err)
		return
	}
	if err := d.keep(b, l); err != nil {
		d.unmarked(l, err)
		return
	}
	trace, err := d.redrive(ctx, of, opened, topic)
	if err != nil {
		if ctx.Err() != nil { // refused while everything ends: no failure of the letter or the publisher
			d.release(b, l)
			return
		}
		d.failed(b, l, err)
		return
	}
	d.mu.Lock()
	d.refusals = 0
	d.mu.Unlock()
	d.mark(b, l, letters.StatusRedriven, "", trace, &d.report.Redriven)
	d.onRedrive(ctx, of, topic)
}

// mark counts what happened to the letter and records it. It reports whether the record stands. trace is that of the
// redrive.
func (d *drain) mark(b *batch, l letters.Letter, status letters.Status, why, trace string, count *int) bool {
	err := d.settlement(l.Letter, d.store, string(status), trace, func(in context.Context) error {
		ctx, cancel := context.WithTimeout(in, maxWrite)
		defer cancel()
		act := letters.Act{By: d.By, Reason: why, RedriveID: d.id}
		settled, err := d.store.Inside().Settle(ctx, status, act, b.claim.Of(l))
		if err == nil && len(settled) == 0 {
			err = fmt.Errorf("letter %d: %w", l.Seq, letters.ErrLeaseLost)
		}
		return err
	})
	if err == nil || status == letters.StatusRedriven { // published it is, marked or not
		d.mu.Lock()
		*count++
		if slices.Contains(d.Filter.Statuses, status) {
			d.considered[l.Seq] = struct{}{}
		}
		d.mu.Unlock()
	}
	if err != nil {
		d.unmarked(l, err)
	}
	return err == nil
}

// unmarked handles a letter that could not be marked. A letter that another caller has now is that caller's. Any other
// error is of the database: a drain that went on without marking would publish every letter twice.
func (d *drain) unmarked(l letters.Letter, err error) {
	if errors.Is(err, letters.ErrLeaseLost) {
		logging.LetterTakenOver.Write(d.Logger, err, nil)
		d.mu.Lock()
		d.report.LeasesLost++
		d.considered[l.Seq] = struct{}{}
		d.mu.Unlock()
		return
	}
	d.stop(err)
}

// failed puts the letter back behind all others, so that one that is refused for good does not stand in the way of the
// next drain too. A refusal for size is the letter's own and says nothing of the publisher.
func (d *drain) failed(b *batch, l letters.Letter, err error) {
	postponed := d.underGrace(func(ctx context.Context) error {
		return d.store.Inside().Postpone(ctx, b.claim.Of(l))
	})
	if postponed != nil {
		d.unmarked(l, postponed)
	}
	d.mu.Lock()
	d.report.Failed++
	if !d.Classifier.IsTooLarge(err) {
		d.refusals++
	}
	over := d.refusals >= maxRefusals
	d.mu.Unlock()
	if over {
		d.stop(fmt.Errorf("the publisher refused %d letters in a row: %w", maxRefusals, err))
	}
}

func (d *drain) release(b *batch, some ...letters.Letter) {
	err := d.underGrace(func(ctx context.Context) error { return d.store.Inside().Release(ctx, b.claim.Of(some...)) })
	if err != nil {
		logging.LettersNotReleased.Write(d.Logger, err, nil)
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

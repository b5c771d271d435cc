package redrive

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/sqlstore/batcher"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

var errInterrupted = errors.New("the publisher called runtime.Goexit")

// one settles a letter: published and marked, or released. A letter that was published may be marked beside the next
// ones.
func (d *drain) one(ctx context.Context, b *batch, l *letters.Letter) {
	returned := false
	defer func() {
		if !returned { // the goroutine is lost, the letter is not
			d.failed(b, l, errInterrupted)
			d.stop(errInterrupted) // the rest of the batch was not considered, and must not pass for done
			b.Done(l)
		}
	}()
	mark := d.settle(ctx, b, l)
	returned = true
	if mark == nil {
		b.Done(l)
		return
	}
	b.marking.Go(func() {
		defer func() { b.Done(l); <-d.unmarked }()
		mark()
	})
}

// settle returns how to mark a letter that was published. It has a place in d.unmarked. Of any other letter it returns
// nil.
func (d *drain) settle(ctx context.Context, b *batch, l *letters.Letter) (mark func()) {
	of := l.Letter
	if d.spent(of) {
		if d.mark(b, l, letters.StatusQuarantined, classify.ReasonMaxRedrives, "", &d.report.Quarantined) {
			d.onQuarantine(ctx, of)
		}
		return nil
	}
	topic, err := d.target(of)
	if err != nil {
		logging.RedriveRefused.Write(d.Logger, err, fields(of, topic))
		d.unreadable(b, l, topic)
		return nil
	}
	opened, err := d.open(ctx, l)
	if err != nil {
		d.closed(ctx, b, l, topic, err)
		return nil
	}
	if err := d.wait(ctx); err != nil {
		d.release(b, l)
		d.stop(err)
		return nil
	}
	d.unmarked <- struct{}{}
	if ctx.Err() != nil { // a mark failed
		<-d.unmarked
		d.release(b, l)
		return nil
	}
	if err := b.Keep(l); err != nil {
		<-d.unmarked
		d.lostMark(l, err)
		return nil
	}
	trace, err := d.redrive(ctx, of, opened, topic)
	if err != nil {
		<-d.unmarked
		if ctx.Err() != nil { // refused while everything ends: no failure of the letter or the publisher
			d.release(b, l)
		} else {
			d.failed(b, l, err)
		}
		return nil
	}
	d.mu.Lock()
	d.refusals = 0
	d.mu.Unlock()
	return func() {
		d.mark(b, l, letters.StatusRedriven, "", trace, &d.report.Redriven)
		d.onRedrive(ctx, of, topic)
	}
}

// mark counts what happened to the letter and records it. It reports whether the record stands. trace is that of the
// redrive.
func (d *drain) mark(b *batch, l *letters.Letter, status letters.Status, why, trace string, count *int) bool {
	err := d.settlement(l.Letter, d.store, string(status), trace, func(in context.Context) error {
		ctx, cancel := context.WithTimeout(in, maxWrite)
		defer cancel()
		alone := func() error {
			settled, err := hidden.Of(d.store).Settle(ctx, status, d.act(why), nil, b.Of(l))
			if err == nil && len(settled) == 0 {
				err = fmt.Errorf("letter %d: %w", l.Seq, letters.ErrLeaseLost)
			}
			return err
		}
		if status != letters.StatusRedriven {
			return alone()
		}
		return d.marks.Do(ctx, marking{b, l}, 0, alone)
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
		d.lostMark(l, err)
	}
	return err == nil
}

func (d *drain) act(why string) letters.Act {
	return letters.Act{By: d.By, Reason: why, RedriveID: d.id}
}

// marking is a letter of a batch that was published, and is to be marked.
type marking struct {
	batch  *batch
	letter *letters.Letter
}

// newMarks batches the marks of letters that were published at the same time: each mark is a transaction, and many
// letters change the same counters.
func (d *drain) newMarks() *batcher.Batcher[marking] {
	return batcher.New(batcher.Config[marking]{Rows: letters.MaxLimit, Lanes: 1, Timeout: maxWrite,
		Together: d.markAll})
}

// markAll marks letters in one transaction, and returns those that have lost their lease.
func (d *drain) markAll(ctx context.Context, all []marking) (lost []int, err error) {
	claims := make([]inside.Claim[letters.Letter], len(all))
	for i, m := range all {
		claims[i] = m.batch.Of(m.letter)
	}
	settled, err := hidden.Of(d.store).Settle(ctx, letters.StatusRedriven, d.act(""), nil, claims...)
	marked := make(map[int64]bool, len(settled))
	for _, seq := range settled {
		marked[seq] = true
	}
	for i, m := range all {
		if !marked[m.letter.Seq] {
			lost = append(lost, i)
		}
	}
	return lost, err
}

// lostMark handles a letter that could not be marked. A letter that another caller has now is that caller's. Any other
// error is of the database: a drain that went on without marking would publish every letter twice.
func (d *drain) lostMark(l *letters.Letter, err error) {
	if errors.Is(err, letters.ErrLeaseLost) {
		eventLetterTakenOver.Write(d.Logger, err, nil)
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
func (d *drain) failed(b *batch, l *letters.Letter, err error) {
	postponed := d.underGrace(func(ctx context.Context) error {
		return hidden.Of(d.store).Postpone(ctx, b.Of(l))
	})
	if postponed != nil {
		d.lostMark(l, postponed)
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

func (d *drain) release(b *batch, some ...*letters.Letter) {
	err := d.underGrace(func(ctx context.Context) error { return hidden.Of(d.store).Release(ctx, b.Of(some...)) })
	if err != nil {
		eventLettersNotReleased.Write(d.Logger, err, nil)
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

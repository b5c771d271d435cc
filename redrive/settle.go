package redrive

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/redrive/internal/engine"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

var errInterrupted = errors.New("the publisher called runtime.Goexit")

// result is what became of a letter of a drain. The zero value is a letter that is released.
type result struct {
	status letters.Status
	topic  string // to which it was published
	trace  string
	failed bool // the publisher refused it
	lost   bool // its lease, before it was published
}

// Status implements engine.Result.
func (r result) Status() letters.Status { return r.status }

// bring publishes a letter if it may be.
func (d *drain) bring(ctx context.Context, p engine.Piece) result {
	l, of := p.Letter, p.Letter.Letter
	if d.spent(of) {
		return result{status: letters.StatusQuarantined}
	}
	topic, err := d.target(of)
	if err != nil { // the row has an allowed topic and the metadata do not: it is damaged
		logging.RedriveRefused.Write(d.Logger, err, fields(of, topic))
		return d.left(l, func(r *Report) {
			r.Refused++
			r.refusedTopic(topic, 1)
		})
	}
	opened, err := d.open(ctx, l)
	if err != nil {
		return d.closed(ctx, l, topic, err)
	}
	if err := d.wait(ctx); err != nil {
		d.stop(err)
		return result{}
	}
	if err := p.Batch.Keep(l); err != nil {
		d.lostMark(l, err)
		return result{lost: true}
	}
	trace, err := d.redrive(ctx, of, opened, topic)
	if err == nil {
		d.refused(nil)
		return result{status: letters.StatusRedriven, topic: topic, trace: trace}
	}
	if ctx.Err() != nil { // refused while everything ends: no failure of the letter or the publisher
		return result{}
	}
	d.refused(err)
	return result{failed: true}
}

// left is a letter that stays as it is. This drain does not take it again.
func (d *drain) left(l *letters.Letter, count func(*Report)) result {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.considered[l.Seq] = struct{}{}
	d.report.Taken--
	count(&d.report)
	return result{}
}

// refused notes whether the publisher refused a letter. After some in a row the drain ends. A refusal for size is the
// letter's own and says nothing of the publisher.
func (d *drain) refused(err error) {
	d.mu.Lock()
	switch {
	case err == nil:
		d.refusals = 0
	case !d.Classifier.IsTooLarge(err):
		d.refusals++
	}
	over := d.refusals >= engine.MaxRefusals
	d.mu.Unlock()
	if over {
		d.stop(fmt.Errorf("the publisher refused %d letters in a row: %w", engine.MaxRefusals, err))
	}
}

// settle writes down what became of letters.
func (d *drain) settle(some []engine.Settled[result]) {
	if status := some[0].Result.status; status != "" {
		_ = d.mark(status, some) // each letter has the error
		return
	}
	err := d.underGrace(func(ctx context.Context) error {
		var back []engine.Settled[result]
		for _, n := range some {
			switch {
			case n.Result.failed:
				d.failed(ctx, n)
			case !n.Result.lost:
				back = append(back, n)
			}
			if !n.Begun {
				d.taken(-1)
			}
		}
		_, err := hidden.Of(d.store).Settle(ctx, "", letters.Act{}, nil, engine.Claims(back)...)
		return err
	})
	if err != nil {
		eventLettersNotReleased.Write(d.Logger, err, nil)
	}
}

// mark records what happened to letters, in one transaction, or each alone if that fails, until one has no answer in
// time: each of the others would wait as long. What is published is counted, marked or not.
func (d *drain) mark(status letters.Status, some []engine.Settled[result]) (failed error) {
	why := ""
	if status == letters.StatusQuarantined {
		why = classify.ReasonMaxRedrives
	}
	if slices.Contains(d.Filter.Statuses, status) { // the filter chooses them again
		d.mu.Lock()
		for _, n := range some {
			d.considered[n.Letter.Seq] = struct{}{}
		}
		d.mu.Unlock()
	}
	var marked []int64
	err := d.underGrace(func(ctx context.Context) (err error) {
		marked, err = hidden.Of(d.store).Settle(ctx, status, letters.Act{By: d.By, Reason: why, RedriveID: d.id}, nil,
			engine.Claims(some)...)
		return err
	})
	if err != nil && len(some) > 1 {
		for i, n := range some {
			if errors.Is(failed, context.DeadlineExceeded) {
				d.settled(n, failed)
			} else {
				failed = d.mark(status, some[i:i+1])
			}
		}
		return failed
	}
	for _, n := range some {
		err := err
		if err == nil && !slices.Contains(marked, n.Letter.Seq) {
			err = fmt.Errorf("letter %d: %w", n.Letter.Seq, letters.ErrLeaseLost)
		}
		d.settled(n, err)
	}
	return err
}

// settled counts a letter that was marked, or could not be.
func (d *drain) settled(n engine.Settled[result], err error) {
	of, r := n.Letter.Letter, n.Result
	if d.Hooks.Tracer != nil {
		op := engine.Operation(observe.Settle, of)
		op.To, op.Client, op.Outcome, op.Parent = of.DeadLetterTopic, d.store, string(r.status), r.trace
		_ = d.traced().PublishMasked(context.Background(), &op, engine.Shown,
			func(context.Context, string) error { return err })
	}
	d.mu.Lock()
	switch {
	case r.status == letters.StatusRedriven:
		d.report.Redriven++
	case err == nil:
		d.report.Quarantined++
	}
	d.mu.Unlock()
	if err != nil {
		d.lostMark(n.Letter, err)
	}
	switch {
	case r.status == letters.StatusRedriven:
		d.onRedrive(d.ctx, of, r.topic)
	case err == nil:
		d.onQuarantine(d.ctx, of)
	}
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
// next drain too.
func (d *drain) failed(ctx context.Context, n engine.Settled[result]) {
	if err := hidden.Of(d.store).Postpone(ctx, n.Batch.Of(n.Letter)); err != nil {
		d.lostMark(n.Letter, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.report.Failed++
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

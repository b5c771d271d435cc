package campaigns

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/wait"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const (
	firstPause = 50 * time.Millisecond // after an error of the database; it doubles
	maxPause   = 5 * time.Second
	// maxRefusals is how many letters in a row a publisher may refuse before the worker believes that the target is down.
	maxRefusals = 3
	// maxTries is how often a letter that the publisher refuses is taken while others are accepted.
	maxTries = 5
)

// run works on a campaign until it does not run any more, or ctx ends.
func (w *Worker) run(ctx context.Context, c Campaign) {
	log := w.Campaigns.config.Logger
	target, pause := &target{refused: make(map[int64]bool), accepts: c.Redriven > 0}, firstPause
	for fresh := true; ctx.Err() == nil; fresh = false {
		k, err := w.claim(ctx, c, fresh)
		if err == nil && len(k.rows) > 0 {
			b := &batch{Worker: w, campaign: c, claim: k, to: target}
			err = b.work(ctx)
		}
		switch {
		case err != nil && ctx.Err() == nil:
			log.Error("A campaign stands still; the worker tries again", err, map[string]any{"campaign": c.ID})
			wait.For(ctx, pause)
			pause = min(2*pause, maxPause)
		case k.stopped:
			return
		case len(k.rows) == 0:
			wait.For(ctx, k.pause)
		default:
			pause = firstPause
		}
	}
}

// batch is a claim at work.
type batch struct {
	*Worker
	campaign Campaign
	claim    claim
	cancel   context.CancelFunc
	marker   marker

	mu      sync.Mutex // guards what follows
	hand    map[int64]letters.Taken
	until   time.Time
	lost    map[int64]bool
	results []result
	to      *target
	down    error // why the campaign is to pause: the target refuses
}

// target is what one run of a worker knows of where the letters go.
type target struct {
	refused map[int64]bool // letters that were refused since one was accepted
	accepts bool           // it accepted a letter before
}

// outcome is what became of a letter of a claim.
type outcome string

const (
	redriven    outcome = "redriven"
	quarantined outcome = "quarantined"
	refused     outcome = "refused" // the topic is not allowed, or the edit does not fit
	failed      outcome = "failed"  // the publisher does not take it
	gone        outcome = "gone"    // it does not wait any more
	back        outcome = ""        // it is pending as before
)

type result struct {
	row
	outcome outcome
	why     string
	edited  bool
	rest    time.Duration // before it is taken again
	tries   int
}

// work redrives the letters of the claim. It returns when the publisher has returned and what became of the letters is written
// down. Letters that were not begun when ctx ended are given back.
func (b *batch) work(parent context.Context) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	b.cancel = cancel
	taken, err := b.lease(ctx)
	if err != nil {
		for _, r := range b.claim.rows {
			b.note(result{row: r})
		}
		return errors.Join(err, b.settle())
	}
	endRenewing := b.renewing()
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(b.campaign.Request.Concurrency, len(taken)) {
		workers.Go(func() {
			for i := range next {
				b.one(ctx, i, taken[b.claim.rows[i].seq])
			}
		})
	}
	for i, r := range b.claim.rows {
		if _, is := taken[r.seq]; !is {
			continue
		}
		if due := b.claim.due(i); wait.For(ctx, time.Until(due)) {
			select {
			case next <- i:
				continue
			case <-ctx.Done():
			}
		}
		b.release(taken[r.seq])
		b.note(result{row: r})
	}
	close(next)
	workers.Wait()
	endRenewing()
	return b.settle()
}

// lease leases the letters of the claim, and settles those that cannot be leased.
func (b *batch) lease(ctx context.Context) (map[int64]letters.Taken, error) {
	seqs := make([]int64, len(b.claim.rows))
	for i, r := range b.claim.rows {
		seqs[i] = r.seq
	}
	until := time.Now().Add(b.config.Lease)
	leased, err := b.store.Lease(ctx, letters.Filter{Statuses: b.campaign.Request.Filter.Statuses}, seqs, b.config.Lease)
	if err != nil {
		return nil, err
	}
	b.until, b.lost, b.hand = until, make(map[int64]bool), make(map[int64]letters.Taken)
	taken := make(map[int64]letters.Taken, len(leased))
	for _, t := range leased {
		taken[t.Seq], b.hand[t.Seq] = t, t
	}
	for _, r := range b.claim.rows {
		t, is := taken[r.seq]
		switch {
		case is && t.Marked.RedriveID == b.campaign.ID: // a worker that was killed had done it: the filter chooses its new status too
			b.release(t)
			b.note(b.doneBefore(r, t.Letter))
			delete(taken, r.seq)
		case !is:
			result, err := b.missing(ctx, r)
			if err != nil {
				for _, t := range leased {
					b.release(t)
				}
				return nil, err
			}
			b.note(result)
		}
	}
	return taken, nil
}

// missing says what became of a letter that could not be leased: a drain has it, or had it, or a worker of this campaign did and
// was killed before it wrote that down.
func (b *batch) missing(ctx context.Context, r row) (result, error) {
	found, err := b.store.List(ctx, letters.Filter{After: r.seq - 1, MaxSeq: r.seq, Statuses: letters.Statuses()})
	switch {
	case err != nil:
		return result{}, err
	case len(found) == 0:
		return result{row: r, outcome: gone, why: "the letter is not in the store any more, or arrived again"}, nil
	}
	l := found[0]
	if l.Marked.RedriveID == b.campaign.ID {
		return b.doneBefore(r, l), nil
	}
	if chosen(b.campaign.Request.Filter.Statuses, l.Status) {
		return result{row: r, rest: b.config.Lease / 4, tries: r.tries}, nil // a lease of another is on it
	}
	return result{row: r, outcome: gone, why: "the letter is " + string(l.Status)}, nil
}

func chosen(statuses []letters.Status, status letters.Status) bool {
	if len(statuses) == 0 {
		return status == letters.StatusWaiting
	}
	for _, s := range statuses {
		if s == status {
			return true
		}
	}
	return false
}

// doneBefore is what a worker that was killed did with a letter.
func (b *batch) doneBefore(r row, l letters.Letter) result {
	if l.Status == letters.StatusQuarantined {
		return result{row: r, outcome: quarantined}
	}
	return result{row: r, outcome: redriven, edited: b.campaign.Request.Edit != nil}
}

func (b *batch) note(r result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.results = append(b.results, r)
	delete(b.hand, r.seq)
}

// refusedBy notes that the target refused a letter. Three different letters in a row say that the target is down, and so does
// one that was refused again and again if the target has accepted none.
func (b *batch) refusedBy(r row, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.to.refused[r.seq] = true
	never := r.tries+1 >= maxTries && !b.to.accepts
	if (len(b.to.refused) >= maxRefusals || never) && b.down == nil {
		b.down = fmt.Errorf("the target refused %d letters in a row: %s", len(b.to.refused), boundedtext.Error(err, 500))
		b.cancel()
	}
}

func (b *batch) accepted() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.to.accepts = true
	clear(b.to.refused)
}

func (b *batch) isDown() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.down != nil
}

func (b *batch) release(taken ...letters.Taken) {
	ctx, cancel := context.WithTimeout(context.Background(), maxWrite)
	defer cancel()
	if err := b.store.Release(ctx, taken...); err != nil {
		b.Campaigns.config.Logger.Error("Letters were not released; they are free again when their lease is over", err, map[string]any{"campaign": b.campaign.ID})
	}
}

package campaigns

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// batch is the letters of a claim, under leases that are renewed until what became of all of them is written down.
type batch struct {
	all      *Campaigns
	lasts    time.Duration // a lease
	campaign string
	claim    claim
	lease    inside.Claim[letters.Letter]
	letters  map[int64]*letters.Letter // by Seq; it does not change

	renewal sync.Mutex // one at a time

	mu    sync.Mutex // guards what follows
	hand  map[int64]*letters.Letter
	until time.Time
	lost  map[int64]bool
	left  int // rows of the claim that are not settled
	ended chan struct{}
}

// lease leases the letters of a claim. Those that cannot be leased are settled. After an error the rows are free again.
func (f *flight) lease(ctx context.Context, k claim) (*batch, error) {
	b := &batch{
		all: f.all, lasts: f.config.Lease, campaign: f.campaign.ID, claim: k, until: time.Now().Add(f.config.Lease),
		left: len(k.rows), ended: make(chan struct{}), letters: make(map[int64]*letters.Letter, len(k.rows)),
		hand: make(map[int64]*letters.Letter, len(k.rows)), lost: make(map[int64]bool),
	}
	var err error
	b.lease, err = f.all.store.Inside().Claim(ctx, letters.Filter{Statuses: f.campaign.Request.Filter.Statuses}, k.seqs(),
		f.config.Lease)
	if err != nil {
		f.returnTurns(&k, len(k.rows))
		f.settler.note(b, backs(k.rows)...)
		return nil, err
	}
	for _, l := range b.lease.Letters {
		b.letters[l.Seq], b.hand[l.Seq] = l, l
	}
	var known []result
	for _, r := range k.rows {
		l, is := b.letters[r.seq]
		switch {
		case is && l.Marked.RedriveID == b.campaign: // a worker that was killed had done it: the filter chooses its new status too
			f.release(b, l)
			known = append(known, f.doneBefore(r, l))
			delete(b.letters, r.seq)
		case !is:
			result, err := f.missing(ctx, r)
			if err != nil {
				f.returnTurns(&k, len(k.rows))
				f.release(b, b.lease.Letters...)
				f.settler.note(b, backs(k.rows)...)
				return nil, err
			}
			known = append(known, result)
		}
	}
	f.settler.note(b, known...)
	go b.renewing()
	return b, nil
}

func backs(rows []row) []result {
	results := make([]result, len(rows))
	for i, r := range rows {
		results[i].row = r
	}
	return results
}

// missing says what became of a letter that could not be leased: a drain has it, or had it, or a worker of this
// campaign did and was killed before it wrote that down.
func (f *flight) missing(ctx context.Context, r row) (result, error) {
	found, err := f.all.store.List(ctx, letters.Filter{After: r.seq - 1, MaxSeq: r.seq, Statuses: letters.Statuses()})
	switch {
	case err != nil:
		return result{}, err
	case len(found) == 0:
		return result{row: r, outcome: gone, why: "the letter is not in the store any more, or arrived again"}, nil
	}
	l := found[0]
	if l.Marked.RedriveID == f.campaign.ID {
		return f.doneBefore(r, &l), nil
	}
	if redrivable(l.Status) && chosen(f.campaign.Request.Filter.Statuses, l.Status) {
		return result{row: r, rest: f.config.Lease / 4, tries: r.tries}, nil // a lease of another is on it
	}
	return result{row: r, outcome: gone, why: "the letter is " + string(l.Status)}, nil
}

func chosen(statuses []letters.Status, status letters.Status) bool {
	if len(statuses) == 0 {
		return status == letters.StatusWaiting
	}
	return slices.Contains(statuses, status)
}

// doneBefore is what a worker that was killed did with a letter.
func (f *flight) doneBefore(r row, l *letters.Letter) result {
	if l.Status == letters.StatusQuarantined {
		return result{row: r, outcome: quarantined}
	}
	return result{row: r, outcome: redriven}
}

// renewing renews the leases of the batch three times a lease, until all of it is settled: a publisher may take longer
// than a lease.
func (b *batch) renewing() {
	tick := time.NewTicker(b.lasts / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := b.renewUnless(b.lasts * 5 / 6); err != nil {
				logging.LettersNotRenewed.Write(b.all.config.Logger, err, logging.Fields{logging.Campaign: b.campaign})
			}
		case <-b.ended:
			return
		}
	}
}

// renew lets the leases of the letters in hand, and of all rows, last from now on.
func (b *batch) renew() error {
	b.mu.Lock()
	hand := slices.Collect(maps.Values(b.hand))
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), maxWrite)
	defer cancel()
	until := time.Now().Add(b.lasts)
	_, err := b.all.db.Exec(ctx, b.all.db.Statement(`UPDATE spillway_campaign_letters SET leased_until = now_us() + ? WHERE campaign = ? AND token = ? AND state = 'pending'`),
		b.lasts.Microseconds()+1000, b.all.db.Text(b.campaign), b.all.db.Text(b.claim.token))
	if err != nil || len(hand) == 0 {
		return err
	}
	still, err := b.all.store.Inside().Renew(ctx, b.lasts, b.lease.Of(hand...))
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until = until
	kept := make(map[int64]bool, len(still.Letters))
	for _, l := range still.Letters {
		kept[l.Seq] = true
	}
	for _, l := range hand {
		if _, inHand := b.hand[l.Seq]; inHand && !kept[l.Seq] {
			b.lost[l.Seq] = true
		}
	}
	return nil
}

// keep reports whether the letter's lease lasts for at least a quarter of its time. A process that stood still renews
// its leases late, when others may have taken the letters.
func (b *batch) keep(seq int64) bool {
	return b.renewUnless(b.lasts/4) == nil && !b.isLost(seq)
}

// renewUnless renews the leases unless they last for a time.
func (b *batch) renewUnless(left time.Duration) error {
	if b.lastsFor(left) {
		return nil
	}
	b.renewal.Lock()
	defer b.renewal.Unlock()
	if b.lastsFor(left) {
		return nil
	}
	return b.renew()
}

func (b *batch) lastsFor(left time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Until(b.until) >= left
}

func (b *batch) isLost(seq int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lost[seq]
}

// through says that the lease of a letter is over: it is marked, or released.
func (b *batch) through(seq int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.hand, seq)
}

// settled says that what became of n more letters is written down.
func (b *batch) settled(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left -= n; b.left == 0 {
		close(b.ended)
	}
}

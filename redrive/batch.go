package redrive

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// claim is letters under one lease.
type claim = inside.Claim[letters.Letter]

// batch is the letters that a drain has in hand.
type batch struct {
	claim    claim
	renewing sync.Mutex     // one renewal at a time
	marking  sync.WaitGroup // letters that are published, and not marked yet
	ended    chan struct{}
	renewals sync.WaitGroup // what renews the leases until the end

	mu    sync.Mutex                // guards what follows
	next  []*letters.Letter         // not begun
	open  map[int64]*letters.Letter // not settled
	lost  map[int64]struct{}        // those whose lease another has, or none
	until time.Time
}

func newBatch(c claim) *batch {
	b := &batch{claim: c, ended: make(chan struct{}), next: c.Letters, open: make(map[int64]*letters.Letter),
		lost: make(map[int64]struct{}), until: c.Until}
	for _, l := range c.Letters {
		b.open[l.Seq] = l
	}
	return b
}

// end ends the renewals: all letters are settled, or given back.
func (b *batch) end() {
	close(b.ended)
	b.renewals.Wait()
}

// begin returns the next letter.
func (b *batch) begin() (l *letters.Letter, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.next) == 0 {
		return nil, false
	}
	l, b.next = b.next[0], b.next[1:]
	return l, true
}

// rest returns the letters that were not begun, for the last time: they are no longer part of the batch.
func (b *batch) rest() (rest []*letters.Letter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rest, b.next = b.next, nil
	for _, t := range rest {
		delete(b.open, t.Seq)
	}
	return rest
}

// done says that the letter's lease is over, so that it is not renewed.
func (b *batch) done(l *letters.Letter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, l.Seq)
}

// leases returns the letters whose leases are to be renewed.
func (b *batch) leases() []*letters.Letter {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Values(b.open))
}

// renewed notes which of the letters still had their lease at the renewal.
func (b *batch) renewed(of []*letters.Letter, still claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	lost := make(map[int64]struct{}, len(of))
	for _, l := range of {
		lost[l.Seq] = struct{}{}
	}
	for _, l := range still.Letters {
		b.until = still.Until
		delete(lost, l.Seq)
	}
	for seq := range lost {
		if _, open := b.open[seq]; open {
			b.lost[seq] = struct{}{}
			delete(b.open, seq)
		}
	}
}

func (b *batch) leasedUntil() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.until
}

func (b *batch) isLost(l *letters.Letter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, lost := b.lost[l.Seq]
	return lost
}

// renewing renews the leases of the batch three times a lease until the batch ends. A publisher may take longer than a
// lease: without the renewal another drain would publish the same letters.
func (d *drain) renewing(b *batch) {
	tick := time.NewTicker(max(time.Millisecond, d.config.lease/3))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := d.renew(b); err != nil {
				logging.LettersNotRenewed.Write(d.Logger, err, nil)
			}
		case <-b.ended:
			return
		}
	}
}

// renew lets the leases of the batch last from now on. It goes on after the drain's context ended, for letters that a
// publisher still has.
func (d *drain) renew(b *batch) error {
	b.renewing.Lock()
	defer b.renewing.Unlock()
	leases := b.leases()
	if len(leases) == 0 {
		return nil
	}
	return d.underGrace(func(ctx context.Context) error {
		still, err := hidden.Of(d.store).Renew(ctx, d.config.lease, b.claim.Of(leases...))
		if err == nil {
			b.renewed(leases, still)
		}
		return err
	})
}

// keep returns an error that is letters.ErrLeaseLost unless the letter's lease lasts for at least half of its time. A
// process that stood still renews its leases late, when others may have taken the letters.
func (d *drain) keep(b *batch, l *letters.Letter) error {
	if time.Until(b.leasedUntil()) < d.config.lease/2 {
		if err := d.renew(b); err != nil {
			return err
		}
	}
	if b.isLost(l) {
		return letters.ErrLeaseLost
	}
	return nil
}

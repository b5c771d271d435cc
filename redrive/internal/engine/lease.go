package engine

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// MaxWrite bounds each renewal.
const MaxWrite = 30 * time.Second

// Lease is letters that a drain or a campaign has in hand. It is renewed three times in the time that it lasts, until
// all of them are let go: a publisher may take longer.
type Lease struct {
	inside.Claim[letters.Letter]
	store *letters.Store
	lasts time.Duration

	renewing sync.Mutex // one at a time

	mu    sync.Mutex // guards what follows
	hand  map[int64]*letters.Letter
	lost  map[int64]bool
	until time.Time
	ended chan struct{}
}

// Hold renews a claim, of at least one letter, that lasts from now on. failed is called with an error of a renewal.
func Hold(store *letters.Store, c inside.Claim[letters.Letter], lasts time.Duration, failed func(error)) *Lease {
	l := &Lease{Claim: c, store: store, lasts: lasts, hand: make(map[int64]*letters.Letter, len(c.Letters)),
		lost: make(map[int64]bool), until: c.Until, ended: make(chan struct{})}
	for _, one := range c.Letters {
		l.hand[one.Seq] = one
	}
	go l.renewals(failed)
	return l
}

func (l *Lease) renewals(failed func(error)) {
	tick := time.NewTicker(max(time.Millisecond, l.lasts/3))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := l.renew(l.lasts * 5 / 6); err != nil && len(l.held()) > 0 {
				failed(err)
			}
		case <-l.ended:
			return
		}
	}
}

// Keep returns an error that is letters.ErrLeaseLost unless the letter's lease lasts for at least half of its time. A
// process that stood still renews its leases late, when others may have taken the letters.
func (l *Lease) Keep(one *letters.Letter) error {
	if err := l.renew(l.lasts / 2); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost[one.Seq] {
		return letters.ErrLeaseLost
	}
	return nil
}

// Done says that the leases of letters are over, so that they are not renewed.
func (l *Lease) Done(some ...*letters.Letter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.hand)
	for _, one := range some {
		delete(l.hand, one.Seq)
	}
	l.endedAfter(before)
}

// endedAfter ends the renewals with the last letter in hand.
func (l *Lease) endedAfter(before int) {
	if before > 0 && len(l.hand) == 0 {
		close(l.ended)
	}
}

func (l *Lease) held() []*letters.Letter {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.hand))
}

func (l *Lease) lastsFor(left time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Until(l.until) >= left
}

// renew renews the lease of all letters in hand, unless it lasts for a time. It goes on after its caller's context
// ended, for letters that a publisher still has.
func (l *Lease) renew(unless time.Duration) error {
	if l.lastsFor(unless) {
		return nil
	}
	l.renewing.Lock()
	defer l.renewing.Unlock()
	hand := l.held()
	if l.lastsFor(unless) || len(hand) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), MaxWrite)
	defer cancel()
	still, err := hidden.Of(l.store).Renew(ctx, l.lasts, l.Of(hand...))
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(still.Letters) > 0 {
		l.until = still.Until
	}
	before := len(l.hand)
	for _, one := range hand {
		if _, is := l.hand[one.Seq]; is && !slices.Contains(still.Letters, one) {
			l.lost[one.Seq] = true
			delete(l.hand, one.Seq)
		}
	}
	l.endedAfter(before)
	return nil
}

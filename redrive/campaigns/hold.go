package campaigns

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// renewing renews the leases of the batch three times a lease until the returned function is called: a publisher may take
// longer than a lease.
func (b *batch) renewing() (end func()) {
	ended, returned := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(returned)
		tick := time.NewTicker(b.config.Lease / 3)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if err := b.renew(); err != nil {
					b.Campaigns.config.Logger.Error("The leases of letters were not renewed; the next try is in a third of a lease", err, map[string]any{"campaign": b.campaign.ID})
				}
			case <-ended:
				return
			}
		}
	}()
	return func() { close(ended); <-returned }
}

// renew lets the leases of the letters in hand, and of their rows, last from now on.
func (b *batch) renew() error {
	b.mu.Lock()
	hand := slices.Collect(maps.Values(b.hand))
	b.mu.Unlock()
	if len(hand) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxWrite)
	defer cancel()
	until := time.Now().Add(b.config.Lease)
	_, err := b.db.Exec(ctx, b.db.Statement(`UPDATE spillway_campaign_letters SET leased_until = now_us() + ? WHERE campaign = ? AND token = ? AND state = 'pending'`),
		b.config.Lease.Microseconds()+1000, b.db.Text(b.campaign.ID), b.db.Text(b.claim.token))
	if err != nil {
		return err
	}
	still, err := b.store.Renew(ctx, b.config.Lease, hand...)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until = until
	kept := make(map[int64]bool, len(still))
	for _, t := range still {
		kept[t.Seq] = true
	}
	for _, t := range hand {
		if _, inHand := b.hand[t.Seq]; inHand && !kept[t.Seq] {
			b.lost[t.Seq] = true
		}
	}
	return nil
}

// keep reports whether the letter's lease lasts for at least half of its time. A process that stood still renews its leases
// late, when others may have taken the letters.
func (b *batch) keep(t letters.Taken) bool {
	if time.Until(b.leasedUntil()) < b.config.Lease/2 {
		if b.renew() != nil {
			return false
		}
	}
	return !b.isLost(t)
}

func (b *batch) leasedUntil() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.until
}

func (b *batch) isLost(t letters.Taken) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lost[t.Seq]
}

package redrive

import (
	"context"
	"time"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

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
		still, err := d.store.Inside().Renew(ctx, d.config.lease, b.claim.Of(leases...))
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

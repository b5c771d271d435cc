package redrive

import (
	"context"
	"time"
)

// renewing renews the leases of the batch three times a lease until the returned function is called. A publisher may take
// longer than a lease: without the renewal another drain would publish the same letters.
func (d *drain) renewing(b *batch) (end func()) {
	ended, returned := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(returned)
		tick := time.NewTicker(max(time.Millisecond, d.config.Lease/3))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if err := d.renew(b); err != nil {
					d.logger.Error("The leases of letters were not renewed; the next try is in a third of a lease", err, nil)
				}
			case <-ended:
				return
			}
		}
	}()
	return func() { close(ended); <-returned }
}

// renew lets the leases of the batch last from now on. It goes on after the drain's context ended, for letters that a
// publisher still has.
func (d *drain) renew(b *batch) error {
	b.renewing.Lock()
	defer b.renewing.Unlock()
	seqs := b.seqs()
	if len(seqs) == 0 {
		return nil
	}
	until := time.Now().Add(d.config.Lease)
	return d.underGrace(func(ctx context.Context) error {
		held, err := d.store.renew(ctx, b.token, seqs, d.config.Lease)
		if err == nil {
			b.renewed(seqs, held, until)
		}
		return err
	})
}

// keep returns an error that is ErrLeaseLost unless the letter's lease lasts for at least half of its time. A process that
// stood still renews its leases late, when others may have taken the letters.
func (d *drain) keep(b *batch, t Taken) error {
	if time.Until(b.leasedUntil()) < d.config.Lease/2 {
		if err := d.renew(b); err != nil {
			return err
		}
	}
	if b.isLost(t) {
		return ErrLeaseLost
	}
	return nil
}

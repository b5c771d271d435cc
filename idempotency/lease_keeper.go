package idempotency

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/safecall"
)

// keeper renews a lease while the handler runs, from timers: a handler that is done before the first renewal costs no
// goroutine. Its time is the process's own monotonic clock, counted from before each request that the database granted.
type keeper struct {
	lease  Lease
	d      time.Duration
	logger watermill.LoggerAdapter
	ctx    context.Context // of the renewals
	cancel context.CancelFunc
	lose   func() // is called at most once

	mu      sync.Mutex
	over    time.Time // when the lease is over, unless it is renewed
	renewal *time.Timer
	expiry  *time.Timer
	stopped bool
	lost    bool
}

// keep keeps a lease that lasts d from began, until stop. The renewals have the values of ctx, and not its end.
func keep(ctx context.Context, lease Lease, began time.Time, d time.Duration, logger watermill.LoggerAdapter,
	lose func()) *keeper {
	k := &keeper{lease: lease, d: d, logger: logger, lose: lose}
	k.since(began)
	k.ctx, k.cancel = context.WithCancel(context.WithoutCancel(ctx))
	k.mu.Lock() // the timers may fire before they are known
	defer k.mu.Unlock()
	k.expiry = time.AfterFunc(time.Until(k.over), k.expire)
	k.renewal = time.AfterFunc(time.Until(began.Add(d/3)), k.renew)
	return k
}

// renew has a third of the lease for its request, so that one which hangs leaves time for another.
func (k *keeper) renew() {
	began := time.Now()
	ctx, cancel := context.WithTimeout(k.ctx, k.d/3)
	defer cancel()
	err := safecall.Call("Lease.Renew", func() error { return k.lease.Renew(ctx) })
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.stopped:
	case err == nil:
		k.since(began)
		k.expiry.Reset(time.Until(k.over))
		k.renewal.Reset(time.Until(began.Add(k.d / 3)))
	case errors.Is(err, ErrLeaseLost):
		k.end(true)
	default:
		logging.LeaseNotRenewed.Write(k.logger, err, nil)
		k.renewal.Reset(min(k.d/20, time.Second))
	}
}

func (k *keeper) expire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.stopped && !time.Now().Before(k.over) { // a renewal may have come in between
		k.end(true)
	}
}

func (k *keeper) end(lost bool) {
	k.stopped, k.lost = true, lost
	k.renewal.Stop()
	k.expiry.Stop()
	if lost {
		k.lose()
	}
}

// stop ends the renewals, and reports whether the lease was lost before. One that is under way is ignored: a renewal
// changes nothing after Complete or Release.
func (k *keeper) stop() (lost bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.stopped {
		k.end(false)
	}
	return k.lost
}

// left is how long the lease lasts, once its renewals have ended.
func (k *keeper) left() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Until(k.over)
}

// renewed lets the lease last from began, once its renewals have ended.
func (k *keeper) renewed(began time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.since(began)
}

// since leaves a twentieth of the lease out, because timers fire late, clocks differ in pace, and a handler that is
// cancelled takes a moment to end.
func (k *keeper) since(began time.Time) { k.over = began.Add(k.d - k.d/20) }

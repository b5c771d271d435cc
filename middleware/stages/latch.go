package stages

import (
	"context"
	"sync"
	"time"
)

// latch opens when a stage has subscribed to its topic. Some pub/subs lose messages that are published before, and the
// router may start the live handler first.
type latch struct {
	once   sync.Once
	opened chan struct{}
}

func newLatch() *latch { return &latch{opened: make(chan struct{})} }

func (l *latch) open() { l.once.Do(func() { close(l.opened) }) }

// maxSubscribing is more than the handlers of a router need to subscribe.
const maxSubscribing = 10 * time.Second

// await waits until the latch opens, and reports whether it did before maxSubscribing passed or ctx ended.
func (l *latch) await(ctx context.Context) bool {
	select {
	case <-l.opened: // nearly always
		return true
	default:
	}
	timer := time.NewTimer(maxSubscribing)
	defer timer.Stop()
	select {
	case <-l.opened:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

package stages

import (
	"context"
	"sync"
	"time"
)

// latch opens when a stage's handler has subscribed: before that, a router that has started the live handler already would
// send messages where some pub/subs have nobody to keep them for.
type latch struct {
	once   sync.Once
	opened chan struct{}
}

func newLatch() *latch { return &latch{opened: make(chan struct{})} }

func (g *latch) open() { g.once.Do(func() { close(g.opened) }) }

// maxSubscribing is more than the handlers of a router need to subscribe.
const maxSubscribing = 10 * time.Second

// await tells whether the gate opened in time, before ctx ended.
func (g *latch) await(ctx context.Context) bool {
	select {
	case <-g.opened: // nearly always
		return true
	default:
	}
	timer := time.NewTimer(maxSubscribing)
	defer timer.Stop()
	select {
	case <-g.opened:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

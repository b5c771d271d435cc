package middleware

import (
	"context"
	"sync"
	"time"
)

// gate opens when a stage's handler has subscribed: before that, a router that has started the live handler already would
// send messages where some pub/subs have nobody to keep them for.
type gate struct {
	once sync.Once
	open chan struct{}
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

func (g *gate) pass() { g.once.Do(func() { close(g.open) }) }

// maxGate is more than the handlers of a router need to subscribe.
const maxGate = 10 * time.Second

// await tells whether the gate opened in time, before ctx ended.
func (g *gate) await(ctx context.Context) bool {
	select {
	case <-g.open: // nearly always
		return true
	default:
	}
	timer := time.NewTimer(maxGate)
	defer timer.Stop()
	select {
	case <-g.open:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

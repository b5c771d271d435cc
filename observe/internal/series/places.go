package series

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

// Place is where messages are handled.
type Place struct{ Topic, Handler string }

// Places keep what was made for a place, so that a message looks nothing up under a lock.
type Places[T any] struct {
	known  atomic.Pointer[map[Place]*T] // copied on write
	adding sync.Mutex
}

// Of returns what was made for a place, or nil.
func (p *Places[T]) Of(at Place) *T {
	if known := p.known.Load(); known != nil {
		return (*known)[at]
	}
	return nil
}

// Keep keeps it, unless most others are kept.
func (p *Places[T]) Keep(at Place, made *T, most int) {
	p.adding.Lock()
	defer p.adding.Unlock()
	next := map[Place]*T{}
	if known := p.known.Load(); known != nil {
		next = maps.Clone(*known)
	}
	if len(next) < most {
		next[Place{strings.Clone(at.Topic), strings.Clone(at.Handler)}] = made
		p.known.Store(&next)
	}
}

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
	known  atomic.Pointer[map[Place]*T]             // copied on write
	recent [recentPlaces]atomic.Pointer[visited[T]] // of known, by the lengths of their names
	adding sync.Mutex
}

const recentPlaces = 16 // a power of two

type visited[T any] struct {
	Place
	made *T
}

func (p *Places[T]) slot(at Place) *atomic.Pointer[visited[T]] {
	return &p.recent[(len(at.Topic)^len(at.Handler)<<1)&(recentPlaces-1)]
}

// Of returns what was made for a place, or nil.
func (p *Places[T]) Of(at Place) *T {
	if v := p.slot(at).Load(); v != nil && v.Place == at {
		return v.made
	}
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
		at = Place{strings.Clone(at.Topic), strings.Clone(at.Handler)}
		next[at] = made
		p.known.Store(&next)
		p.slot(at).CompareAndSwap(nil, &visited[T]{at, made}) // the first one stays: places that take turns write nothing
	}
}

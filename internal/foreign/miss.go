package foreign

import (
	"sync"
	"sync/atomic"
)

// Miss is something of another module that is not as the library knows it.
type Miss struct {
	Of   string // a type, or what is done with it
	What string // that is unknown
}

var misses struct {
	mu    sync.Mutex
	noted map[Miss]bool
	open  []Miss // not yet taken
	any   atomic.Bool
}

// maxMisses bounds what is remembered.
const maxMisses = 256

func note(of, what string) {
	misses.mu.Lock()
	defer misses.mu.Unlock()
	m := Miss{of, what}
	if misses.noted[m] || len(misses.noted) >= maxMisses {
		return
	}
	if misses.noted == nil {
		misses.noted = map[Miss]bool{}
	}
	misses.noted[m] = true
	misses.open = append(misses.open, m)
	misses.any.Store(true)
}

// Take returns the misses that no earlier call has returned. Each miss is returned once in a process.
func Take() []Miss {
	if !misses.any.Load() {
		return nil
	}
	misses.mu.Lock()
	defer misses.mu.Unlock()
	taken := misses.open
	misses.open = nil
	misses.any.Store(false)
	return taken
}

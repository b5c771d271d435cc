package letters

import (
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
)

// maxSlots is how many writers count at once without waiting for each other. Each slot is a row more for every cause.
const maxSlots = 16

// slots gives each writer of a process a slot of its own, as long as there are any. Two processes begin at different
// ones.
type slots struct {
	first int
	taken atomic.Uint32
}

func newSlots() *slots { return &slots{first: rand.IntN(maxSlots)} }

// take returns a slot, and what gives it back.
func (s *slots) take() (slot int, giveBack func()) {
	for {
		taken := s.taken.Load()
		free := bits.TrailingZeros32(^taken)
		if free >= maxSlots {
			return rand.IntN(maxSlots), func() {}
		}
		if s.taken.CompareAndSwap(taken, taken|1<<free) {
			return (s.first + free) % maxSlots, func() { s.taken.And(^uint32(1 << free)) }
		}
	}
}

package webhooks

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Faults are what goes wrong beyond what the real payloads bring: a downstream that refuses for a while or until the
// fix, payloads cut short on their way, and messages sent twice. The same seed brings the same faults.
type Faults struct {
	// Fixed says that the fix is deployed: the downstream is up again, and the handler knows better.
	Fixed atomic.Bool
	// Bind writes the question marks of a statement as the database wants them. By default they stay.
	Bind func(statement string) string

	refusals map[string]int // how often the downstream refuses the event before the fix
	mu       sync.Mutex
}

const untilFixed = 1 << 30

// Prepare draws the faults for events and returns the deliveries to publish. Of every kind of fault there is at least
// one, however few the events.
func Prepare(events []*message.Message, seed uint64) ([]*message.Message, *Faults) {
	random := rand.New(rand.NewPCG(seed, seed))
	f := &Faults{refusals: map[string]int{}}
	var deliveries []*message.Message
	for i, at := range random.Perm(len(events)) {
		msg := events[at].Copy()
		draw := random.Float64()
		switch {
		case i == 0 || draw < 0.05:
			msg.Payload = msg.Payload[:len(msg.Payload)/2] // cut on its way
		case i == 1 || draw < 0.10:
			f.refusals[msg.UUID] = untilFixed
		case i == 2 || draw < 0.35:
			f.refusals[msg.UUID] = 1 + random.IntN(3)
		}
		deliveries = append(deliveries, msg)
		if i < 4 || random.Float64() < 0.15 {
			deliveries = append(deliveries, msg.Copy())
		}
	}
	random.Shuffle(len(deliveries), func(i, j int) { deliveries[i], deliveries[j] = deliveries[j], deliveries[i] })
	return deliveries, f
}

// downstream is called for every event before it is stored.
func (f *Faults) downstream(id string) error {
	if f.Fixed.Load() {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refusals[id] > 0 {
		f.refusals[id]--
		return fmt.Errorf("look up the repository's owner: %w", syscall.ECONNREFUSED)
	}
	return nil
}

package stages

import (
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/internal/recent"
)

const (
	// maxRefusal is how long a stage may refuse a message, which holds up those behind it when it is requeued. If the
	// stage took another message meanwhile, the message is refused for good. If the stage took none, there is an
	// outage, and one message is dead-lettered in that time.
	maxRefusal = 5 * time.Minute
	// forgotten is how long after its last refusal a message that comes again is a new one: refused ones come at once.
	forgotten = time.Minute
)

// refusals remembers since when stages refuse messages.
type refusals struct {
	mu    sync.Mutex
	since recent.Memory[time.Time]
	took  map[string]time.Time // by stage topic: when it last took a message
	let   map[string]time.Time // by stage topic: when a message was last dead-lettered
}

func newRefusals() refusals {
	return refusals{since: recent.For[time.Time](forgotten), took: make(map[string]time.Time),
		let: make(map[string]time.Time)}
}

// tooLong notes that a topic refused a message, and reports whether that has lasted too long.
func (r *refusals) tooLong(topic string, of recent.Message) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	first := r.since.Note(of, now)
	if first.IsZero() {
		*first = now
	}
	if now.Sub(*first) < maxRefusal {
		return false
	}
	if !r.took[topic].After(*first) && now.Sub(r.let[topic]) < maxRefusal {
		return false
	}
	r.since.Forget(of)
	r.let[topic] = now
	return true
}

// taken notes that a topic took a message.
func (r *refusals) taken(topic string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took[topic] = time.Now()
}

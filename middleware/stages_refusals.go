package middleware

import (
	"hash/fnv"
	"strconv"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

const (
	// maxRefusal is how long a stage may refuse a message until that must end, since whoever is given back holds up those
	// behind it. It is the message that is refused where the stage took another one meanwhile; where it took none there is an
	// outage, and one message is set aside in that time.
	maxRefusal = 5 * time.Minute
	// forgotten is how long after its last refusal a message that comes again is a new one: refused ones come at once.
	forgotten = time.Minute
	// maxRefusals bounds what is remembered.
	maxRefusals = 1000
)

// refusals remembers since when stages refuse messages. It is of this process alone, and forgets with it.
type refusals struct {
	mu       sync.Mutex
	messages map[refusal]*refusing
	swept    time.Time            // when the forgotten were last looked for
	took     map[string]time.Time // by stage topic: when it last took a message
	let      map[string]time.Time // by stage topic: when a message was last set aside
}

type refusal struct{ handler, id string }

type refusing struct{ first, last time.Time }

func refusalOf(handler string, msg *message.Message) refusal {
	if msg.UUID != "" {
		return refusal{handler, msg.UUID}
	}
	sum := fnv.New64a()
	_, _ = sum.Write(msg.Payload)
	return refusal{handler, strconv.FormatUint(sum.Sum64(), 16)}
}

// tooLong notes that a topic refused a message, and tells whether that has lasted too long.
func (r *refusals) tooLong(topic string, of refusal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	one := r.messages[of]
	if one == nil || now.Sub(one.last) > forgotten {
		r.makeRoom(now)
		one = &refusing{first: now}
		r.messages[of] = one
	}
	one.last = now
	if now.Sub(one.first) < maxRefusal {
		return false
	}
	if !r.took[topic].After(one.first) && now.Sub(r.let[topic]) < maxRefusal {
		return false
	}
	delete(r.messages, of)
	r.let[topic] = now
	return true
}

// makeRoom forgets what was not refused again, and where that is not enough anything.
func (r *refusals) makeRoom(now time.Time) {
	if r.messages == nil {
		r.messages, r.let = make(map[refusal]*refusing), make(map[string]time.Time)
	}
	if len(r.messages) < maxRefusals {
		return
	}
	if now.Sub(r.swept) > forgotten {
		r.swept = now
		for of, one := range r.messages {
			if now.Sub(one.last) > forgotten {
				delete(r.messages, of)
			}
		}
	}
	for of := range r.messages {
		if len(r.messages) < maxRefusals {
			return
		}
		delete(r.messages, of)
	}
}

// taken notes that a topic took a message.
func (r *refusals) taken(topic string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.took == nil {
		r.took = make(map[string]time.Time)
	}
	r.took[topic] = time.Now()
}

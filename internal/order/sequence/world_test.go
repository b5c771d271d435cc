package sequence_test

import (
	"fmt"
	"slices"

	"github.com/watermill-spillway/spillway/internal/order/parked"
)

// fault is a way in which the protocol can be built wrong.
type fault string

// doc.go says which rule each one breaks.
const (
	none             fault = ""
	commitTooFar     fault = "an offset is committed behind the last message that is done"
	laneEndsEarly    fault = "a lane goes on when the effect is committed, and the outputs are not published"
	parkLater        fault = "a lane goes on while its message is being parked"
	deleteWithEffect fault = "a parked row goes with the effect, before the outputs are published"
	noTrace          fault = "a letter leaves no settled row"
	settleLater      fault = "a lane goes on before the settled row is written"
	shortRetention   fault = "a key is purged while a stopped process may bring its message"
	mixedVersions    fault = "an instance that knows no parking joins"
	unfetchedDrain   fault = "a new owner drains nothing that it did not park itself"
	capInLane        fault = "at the limit a message waits for room in its lane"
	capOvertakes     fault = "at the limit a message is handled"
)

// chooser chooses what happens next, one of n.
type chooser func(n int) int

// effect is what a handler committed.
type effect struct {
	message
	published bool // its outputs, at least once
}

// world is a partition of a topic, its consumers, and what a user sees.
type world struct {
	broken fault
	choose chooser
	store  *tables

	source     []message
	committed  int // by the group
	purged     int // offsets before it may have no key any more
	generation int
	processes  []*process

	effects   map[string][]*effect // by key
	letters   []message            // not redriven
	discarded []message            // by a person
	seen      message              // by the person who decides
	failures  int                  // that are left
	hold      bool                 // the policy for a head that fails for good
	creating  bool                 // no instance of the first step of a deploy is started any more
	ending    bool                 // all come to their end
	violated  string               // the first violation
}

func newWorld(broken fault, s *tables, choose chooser) *world {
	return &world{broken: broken, choose: choose, store: s, effects: make(map[string][]*effect), failures: choose(7),
		hold: choose(2) == 0, creating: choose(2) == 0}
}

func (w *world) fail(format string, args ...any) {
	if w.violated == "" {
		w.violated = fmt.Sprintf(format, args...)
	}
}

// applied notes an effect. What a key's messages do takes place in the order of the source, each once.
func (w *world) applied(m message) {
	before := w.effects[m.key]
	for _, e := range before {
		if e.id == m.id {
			w.fail("%s took effect twice", m.id)
		}
	}
	if n := len(before); n > 0 && before[n-1].offset > m.offset {
		w.fail("%s at %d took effect after %s at %d", m.id, m.offset, before[n-1].id, before[n-1].offset)
	}
	w.effects[m.key] = append(before, &effect{message: m})
}

// publish notes the outputs of a message. They appear first in the order of the effects, and can appear again.
func (w *world) publish(m message) {
	for _, e := range w.effects[m.key] {
		if e.id == m.id {
			e.published = true
			return
		}
		if !e.published {
			w.fail("the outputs of %s appeared before those of %s", m.id, e.id)
		}
	}
}

func (w *world) current() *process {
	for _, p := range w.processes {
		if p.generation == w.generation {
			return p
		}
	}
	return nil
}

// start starts an instance, which becomes the owner when it joins.
func (w *world) start() {
	p := &process{world: w, parks: w.creating || w.choose(2) == 0, lanes: make(map[string]*lane),
		waiting: make(map[string]bool), done: make(map[int]bool)}
	if p.knows = w.broken != mixedVersions || w.ending || w.choose(2) == 0; !p.knows {
		p.parks = false
	}
	w.processes = append(w.processes, p)
}

// crash ends an instance. The database rolls back what it had open.
func (w *world) crash(p *process) {
	for _, l := range p.lanes {
		for _, d := range append(l.beside, l.now) {
			if d != nil && d.end != nil {
				d.end(false)
			}
		}
	}
	w.processes = slices.DeleteFunc(w.processes, func(q *process) bool { return q == p })
}

const keys = "ab"

func (w *world) produce() {
	key := keys[w.choose(len(keys)):][:1]
	w.source = append(w.source, message{fmt.Sprintf("%s%d", key, len(w.source)), key, len(w.source)})
}

// redrive publishes a letter's message again, behind all others.
func (w *world) redrive() {
	at := w.choose(len(w.letters))
	m := w.letters[at]
	w.letters = slices.Delete(w.letters, at, at+1)
	m.offset = len(w.source)
	w.source = append(w.source, m)
}

// purge purges a key whose message nothing brings any more: the retention is longer than that.
func (w *world) purge() {
	m := w.source[w.choose(len(w.source))]
	for _, other := range w.source {
		if other.id == m.id && other.offset >= w.committed {
			return
		}
	}
	for _, letter := range w.letters {
		if letter.id == m.id {
			return
		}
	}
	for _, p := range w.processes {
		if p.brings(m.id) && (w.broken != shortRetention || p.generation == w.generation) {
			return
		}
	}
	for _, other := range w.source {
		if other.id == m.id {
			w.purged = max(w.purged, other.offset+1)
		}
	}
	w.store.Purge(m.id)
}

// rewind is a person's reset of the group's offset, within the retention of keys. All instances are stopped for it.
func (w *world) rewind() {
	for len(w.processes) > 0 {
		w.crash(w.processes[0])
	}
	if w.purged < w.committed {
		w.committed -= w.choose(w.committed - w.purged + 1)
	}
}

// decide is a person's decision about the first message of a sequence, seen a while ago.
func (w *world) decide() {
	if w.choose(2) == 0 {
		head, _ := w.store.Head(keys[w.choose(len(keys)):][:1])
		w.seen = head.message
		return
	}
	if w.seen.id == "" {
		return
	}
	if what := parked.Decision(w.choose(3) + 1); w.store.Decide(w.seen, what) && what == parked.Discard {
		if head, ok := w.store.Head(w.seen.key); ok && head.message == w.seen && head.decided == what {
			w.discarded = append(w.discarded, w.seen)
		}
	}
}

// erase is the way of an erasure with the first message of a sequence. The row stays, for the owner to find, if its
// process ends in between.
func (w *world) erase() {
	head, ok := w.store.Head(keys[w.choose(len(keys)):][:1])
	if ok && !w.store.IsSettled(head.message) && w.store.Settle(head.message) == settled {
		w.discarded = append(w.discarded, head.message)
		if w.choose(2) == 0 {
			w.store.Delete(head.message)
		}
	}
}

// step lets one thing happen.
func (w *world) step() {
	switch n := w.choose(40); {
	case n == 0 && len(w.processes) < 3:
		w.start()
	case n == 1 && len(w.processes) > 0 && w.choose(3) == 0:
		w.crash(w.processes[w.choose(len(w.processes))])
	case n == 2 && len(w.source) > 0:
		w.purge()
	case n == 3 && len(w.letters) > 0 && len(w.source) < 12:
		w.redrive()
	case n == 4 || n == 5:
		if len(w.source) < 9 {
			w.produce()
		}
	case n == 6:
		if held := w.store.Held(); len(held) > 0 {
			w.store.Decide(held[w.choose(len(held))], parked.Release)
		}
	case n == 7:
		w.creating = true
	case n == 8:
		w.erase()
	case n == 9:
		w.decide()
	case n == 11 && w.choose(4) == 0:
		w.rewind()
	case n < 11 && len(w.processes) > 0:
		p := w.processes[w.choose(len(w.processes))]
		p.stopped = !p.stopped
	case len(w.processes) > 0:
		w.processes[w.choose(len(w.processes))].step()
	}
}

// calm lets everything come to its end, and looks at what is left.
func (w *world) calm() {
	w.failures, w.ending = 0, true
	for _, p := range w.processes {
		p.stopped = false
	}
	for range w.choose(400) {
		w.stepCalmly()
	}
	for range 2 { // the last owner finds what others left behind after the first had looked
		for len(w.processes) > 0 {
			w.crash(w.processes[0])
		}
		w.start()
		for n := 0; n < 800 && w.violated == "" && !w.idle(); n++ {
			w.stepCalmly()
		}
	}
	if !w.idle() {
		w.fail("something is stuck: committed %d of %d, parked %v", w.committed, len(w.source), w.store.Load())
	}
	w.look()
}

func (w *world) stepCalmly() {
	if held := w.store.Held(); len(held) > 0 && w.choose(8) == 0 {
		w.store.Decide(held[0], parked.Release)
	}
	if len(w.processes) > 0 {
		w.processes[w.choose(len(w.processes))].step()
	}
}

func (w *world) idle() bool {
	p := w.current()
	return p != nil && w.committed == len(w.source) && len(w.store.Load()) == 0 && p.idle()
}

// look fails for what is lost. A letter is no loss.
func (w *world) look() {
	seen := make(map[string]bool)
	for _, m := range append(w.letters, w.discarded...) {
		seen[m.id] = true
	}
	for _, effects := range w.effects {
		for _, e := range effects {
			seen[e.id] = true
			if !e.published {
				w.fail("the outputs of %s are lost", e.id)
			}
		}
	}
	for _, m := range w.source {
		if !seen[m.id] {
			w.fail("%s is lost", m.id)
		}
	}
}

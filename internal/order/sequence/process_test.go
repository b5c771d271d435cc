package sequence_test

import "github.com/watermill-spillway/spillway/internal/order/parked"

// process is an instance of the service. It takes the partition for its own until it ends: the broker refuses only its
// commits.
type process struct {
	world      *world
	generation int  // 0 before it has joined
	loaded     bool // what is parked
	stopped    bool // by SIGSTOP, say
	knows      bool // about parking: it appends, and drains
	parks      bool // what fails

	start, next, position int
	done                  map[int]bool
	waiting               map[string]bool // keys with parked messages
	lanes                 map[string]*lane
}

// lane is the messages of a key, one at a time.
type lane struct {
	queue  []message
	now    *delivery
	beside []*delivery // of faults: those that the lane did not wait for
}

type at int

const (
	begin at = iota
	handler
	publish
	letter
	settle
	park
	hold
	finish
)

// delivery is a message on its way through the chain.
type delivery struct {
	message
	drained bool
	forGood bool
	at      at
	end     func(commit bool) // of its claim
}

const (
	inFlight = 5
	limit    = 3 // of what is parked
)

// step does one thing that can be done.
func (p *process) step() {
	w := p.world
	switch {
	case p.stopped:
		return
	case p.generation == 0 && p.knows && w.choose(3) == 0: // it stands by, and drains all the same
		key := keys[w.choose(len(keys)):][:1]
		p.waiting[key] = true
		p.advance(key, p.lane(key))
		return
	case p.generation == 0:
		w.generation++
		p.generation = w.generation
		p.start, p.next, p.position = w.committed, w.committed, w.committed
		return
	case !p.loaded:
		p.load()
		return
	}
	switch n := w.choose(8); n {
	case 0, 1:
		if p.next < len(w.source) && p.next-p.position < inFlight && (w.broken == capInLane || w.broken == capOvertakes || !p.full()) {
			m := w.source[p.next]
			p.next++
			p.lane(m.key).queue = append(p.lane(m.key).queue, m)
		}
	case 2:
		if p.generation == w.generation {
			w.committed = max(w.committed, p.position)
		}
	default:
		key := keys[n%len(keys):][:1]
		p.advance(key, p.lane(key))
	}
}

func (p *process) load() {
	p.loaded = true
	if p.world.broken == unfetchedDrain {
		return
	}
	for _, key := range p.world.store.Load() {
		p.waiting[key] = true
	}
}

// full reports whether no further message is taken. The real owner counts its rows in memory.
func (p *process) full() bool {
	n := 0
	for key := range p.waiting {
		if p.waiting[key] {
			n += p.world.store.Length(key)
		}
	}
	return n >= limit
}

func (p *process) lane(key string) *lane {
	if p.lanes[key] == nil {
		p.lanes[key] = new(lane)
	}
	return p.lanes[key]
}

func (p *process) idle() bool {
	for _, l := range p.lanes {
		if l.now != nil || len(l.queue)+len(l.beside) > 0 {
			return false
		}
	}
	return true
}

// brings reports whether the process has a delivery of the message, or will take one.
func (p *process) brings(id string) bool {
	for _, m := range p.world.source {
		if m.id == id && (p.generation == 0 || m.offset >= p.start && !p.done[m.offset]) {
			return true
		}
	}
	for _, l := range p.lanes {
		for _, d := range append(l.beside, l.now) {
			if d != nil && d.id == id {
				return true
			}
		}
	}
	return false
}

// advance does the next thing of a lane.
func (p *process) advance(key string, l *lane) {
	w := p.world
	if n := len(l.beside); n > 0 && w.choose(2) == 0 {
		d := l.beside[0]
		if p.run(l, d) {
			l.beside = l.beside[1:]
		}
		return
	}
	if l.now == nil {
		p.begin(key, l)
		return
	}
	if d := l.now; p.run(l, d) && l.now == d {
		l.now = nil
	}
}

// begin takes the first parked message, or the next one of the source.
func (p *process) begin(key string, l *lane) {
	w := p.world
	if p.knows && p.waiting[key] && (len(l.queue) == 0 || w.choose(2) == 0) {
		head, ok := w.store.Head(key)
		switch {
		case !ok:
			p.waiting[key] = false
		case ok && !head.held:
			l.now = &delivery{message: head.message, drained: true}
			switch head.decided {
			case parked.Skip:
				l.now.at = letter
			case parked.Discard:
				l.now.at = settle
			}
		}
		return
	}
	if len(l.queue) > 0 {
		l.now = &delivery{message: l.queue[0]}
		l.queue = l.queue[1:]
		if p.knows && p.waiting[key] && !(w.broken == capOvertakes && p.full()) {
			l.now.at = park
		}
	}
}

// leave lets the lane go on without d: a fault.
func (l *lane) leave(d *delivery) {
	if l.now == d {
		l.now = nil
		l.beside = append(l.beside, d)
	}
}

// run does one step of a delivery, and reports whether that was the last. Where the answer is lost, the step is
// repeated.
func (p *process) run(l *lane, d *delivery) (ended bool) {
	w, was := p.world, d.at
	if lost := w.choose(8) == 0; lost && was != begin && was != handler && was != hold && was != finish {
		defer func() { d.at = was }()
	}
	switch d.at {
	case begin:
		end, found := w.store.Claim(d.message)
		switch found {
		case entered:
			d.end, d.at = end, handler
		case applied:
			d.at = publish // what was recorded
		case settled:
			d.at = finish
		}
	case handler:
		return p.handle(l, d)
	case publish:
		w.publish(d.message)
		d.at = finish
	case letter:
		w.letters = append(w.letters, d.message)
		if d.at = settle; w.broken == noTrace {
			d.at = finish
		} else if w.broken == settleLater {
			l.leave(d)
		}
	case settle:
		switch found := w.store.Settle(d.message); {
		case found == applied: // by a stopped process, which may not have published
			d.at = publish
		case found != busy:
			d.at = finish
		}
	case park:
		if w.broken == capInLane && !d.drained && p.full() {
			return false
		}
		if w.store.Park(d.message, d.forGood) {
			p.waiting[d.key] = true
			d.at = finish
		}
	case hold:
		return w.store.Hold(d.message)
	case finish:
		return p.finish(d)
	}
	return false
}

// handle ends the transaction of the handler.
func (p *process) handle(l *lane, d *delivery) (ended bool) {
	w, end := p.world, d.end
	d.end = nil
	fate := w.choose(5)
	if w.failures == 0 || fate < 2 {
		end(true)
		w.applied(d.message)
		if d.at = publish; w.choose(8) == 0 {
			d.at = begin // the answer was lost
		}
		if d.drained && w.broken == deleteWithEffect {
			w.store.Delete(d.message)
		}
		if w.broken == laneEndsEarly {
			l.leave(d)
		}
		return false
	}
	end(false)
	if d.at = begin; fate == 4 {
		return false // given back, and delivered again in its lane
	}
	w.failures--
	d.forGood = fate == 3
	switch {
	case d.forGood && !(w.hold && p.parks):
		d.at = letter
	case d.drained:
		if d.forGood {
			d.at = hold
			return false
		}
		return true // it waits on
	case p.parks:
		if d.at = park; w.broken == parkLater {
			l.leave(d)
		}
	}
	return false
}

// finish deletes the row of a drained message, or acks the one of the source.
func (p *process) finish(d *delivery) (ended bool) {
	if d.drained {
		return p.world.store.Delete(d.message)
	}
	p.done[d.offset] = true
	if p.world.broken == commitTooFar {
		p.position = max(p.position, d.offset+1)
		return true
	}
	for p.done[p.position] {
		p.position++
	}
	return true
}

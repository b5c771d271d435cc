package logging

import (
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// window is the time in which the lines of a place are counted.
	window = time.Minute
	// burst is how many lines of a place are written in a window before they are counted.
	burst = 10
	// maxPlaces bounds the places that are counted on their own. Those beyond are counted together for their event.
	maxPlaces = 500
)

// core is what a Log shares with the Logs that its With returned.
type core struct {
	mask   func(string) string
	counts bool // false for a logger that no part wrapped
	writer writer

	mu     sync.Mutex
	places map[string]*place
	armed  bool // a timer ends the window
}

// place counts the lines of an event in a window.
type place struct {
	event    *Event
	key      string // the event's name, and the values of the fields that make the place
	written  int
	counted  bool // some lines of the window are counted
	storm    bool // the window before had counted lines: this one writes their count alone
	repeated int  // lines that are counted, and in no line yet
	example  *entry
}

func newCore(mask func(string) string) *core {
	return &core{mask: mask, counts: true, writer: writer{one: make(chan struct{}, 1)}, places: make(map[string]*place)}
}

// take decides about a line. It is written, or counted. The place of a counted line is returned if it lacks an example.
func (c *core) take(e *Event, key []byte) (lacks *place, written bool) {
	if !c.counts {
		return nil, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.place(e, key)
	if e.each || !p.storm && p.written < burst {
		p.written++
		return p, true
	}
	p.counted = true
	p.repeated++
	if p.example == nil {
		return p, false
	}
	return nil, false
}

// place returns the place of a line, and has the window end.
func (c *core) place(e *Event, key []byte) *place {
	if p := c.places[string(key)]; p != nil {
		return p
	}
	if len(c.places) >= maxPlaces { // one place for all others of the event: events are few
		if p := c.places[e.Name()]; p != nil {
			return p
		}
		key = key[:len(e.Name())]
	}
	p := &place{event: e, key: string(key)}
	c.add(p)
	return p
}

func (c *core) add(p *place) {
	c.places[p.key] = p
	if !c.armed {
		c.armed = true
		time.AfterFunc(window, c.end)
	}
}

// count counts lines that are not written: none for one that take counted, which is kept as an example, or more for
// those that could not be written. The end of the window tries again.
func (c *core) count(p *place, example entry, lines int) {
	if p == nil { // nothing is counted
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.places[p.key]; now == nil {
		c.add(p)
	} else {
		p = now
	}
	p.counted = true
	p.repeated += lines
	if p.example == nil {
		p.example = &example
	}
}

// end ends a window. A place that had repeats goes on with their count alone, and one that had none is forgotten.
func (c *core) end() {
	c.mu.Lock()
	for key, p := range c.places {
		if p.storm = p.counted; !p.storm {
			delete(c.places, key)
		}
		p.counted, p.written = false, 0
	}
	if c.armed = len(c.places) > 0; c.armed {
		time.AfterFunc(window, c.end)
	}
	c.mu.Unlock()
	c.flush()
}

// flush writes the counts.
func (c *core) flush() {
	for _, p := range c.repeats() {
		if !c.writer.write(p.line()) {
			c.count(&p, *p.example, p.repeated)
		}
	}
}

// repeats takes the places with their counts, in their order.
func (c *core) repeats() (taken []place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(c.places)) {
		if p := c.places[key]; p.repeated > 0 {
			taken = append(taken, *p)
			p.repeated, p.example = 0, nil
		}
	}
	return taken
}

// line returns the line of a count, with the fields of its example.
func (p *place) line() entry {
	if p.example == nil { // its fields are not built yet
		p.example = &entry{level: p.event.level, text: p.event.text, fields: Fields{EventName: p.event.name}}
	}
	e := *p.example
	e.fields = maps.Clone(e.fields)
	e.fields[Repeated] = p.repeated
	return e
}

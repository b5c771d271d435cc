package crashlimit

import "time"

// staleAfter is how many beats a process may miss.
const staleAfter = 3

// row is another process as the store knows it.
type row struct {
	id       string
	beats    int64
	interval time.Duration // between heartbeats
	lost     bool          // a process found that it stopped
	lostFor  time.Duration // by the database's clock
}

// detector decides from what it sees of other processes whether deliveries are to be marked. It compares no clocks:
// what counts is that a process beats, seen on its own clock.
type detector struct {
	interval, quietAfter time.Duration
	known                map[string]*sighting
	begun                bool      // that it has looked before
	until                time.Time // marking lasts at least
}

// sighting is what is known of another process.
type sighting struct {
	beats    int64
	changed  time.Time
	unmoved  int   // looks since then
	unproven bool  // it was there at the first look, and has not shown since that it lives
	first    int64 // how many beats it had then
	lost     bool
}

// proof is how many beats show that a process lives. One may be that of a process which ended while its last statement
// was still on its way.
const proof = 2

// look takes in what a look showed. It returns those that have stopped beating, and those that were lost so long ago
// that they can be forgotten.
func (d *detector) look(now time.Time, rows []row) (stale, forgotten []row) {
	seen := make(map[string]*sighting, len(rows))
	for _, r := range rows {
		if r.lost && r.lostFor >= d.quietAfter {
			forgotten = append(forgotten, r)
			continue
		}
		s := d.sight(now, r)
		seen[r.id] = s
		if !r.lost && s.unmoved >= staleAfter && now.Sub(s.changed) >= staleAfter*max(d.interval, r.interval) {
			stale = append(stale, r)
		}
	}
	d.known, d.begun = seen, true // a process that is gone has signed off
	return stale, forgotten
}

func (d *detector) sight(now time.Time, r row) *sighting {
	s := d.known[r.id]
	switch {
	case s == nil:
		// A process that was there before may be what is left of one that ended a moment ago.
		s = &sighting{beats: r.beats, changed: now, unproven: !d.begun, first: r.beats}
	case s.beats != r.beats:
		s.beats, s.changed, s.unmoved = r.beats, now, 0
		s.unproven = s.unproven && r.beats-s.first < proof
	default:
		s.unmoved++
	}
	if r.lost && !s.lost {
		d.alarm(now.Add(d.quietAfter - r.lostFor))
	}
	s.lost = r.lost
	return s
}

// lost takes in that this detector was the one that found a process lost.
func (d *detector) lost(now time.Time, id string) {
	d.known[id].lost = true
	d.alarm(now.Add(d.quietAfter))
}

func (d *detector) alarm(until time.Time) {
	if until.After(d.until) {
		d.until = until
	}
}

// marking reports whether deliveries are to be marked.
func (d *detector) marking(now time.Time) bool {
	if now.Before(d.until) {
		return true
	}
	for _, s := range d.known {
		if s.unproven && !s.lost {
			return true
		}
	}
	return false
}

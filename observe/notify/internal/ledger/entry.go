package ledger

import (
	"time"
)

// entry is an episode. Times are microseconds since 1970, by the clock of the entries, but for first and last.
type entry struct {
	opened, ends  int64 // of the episode, and of its window
	total, untold int64
	first, last   int64
	about         string

	telling       Step // what an instance is about to tell; empty if there is nothing
	said          int64
	number        int64 // of tellings
	holder        string
	leased, tries int64
}

// maxTries is how many instances may begin to tell the same.
const maxTries = 2

// count adds a report to an entry, which may be new.
func (l *Ledger) count(e *entry, r Report, now int64) *Telling {
	lasts := l.rules.Lasts(r.Kind)
	if e.opened == 0 || e.telling == "" && e.untold == 0 && now >= e.ends && !lasts {
		return l.open(e, r, now)
	}
	if r.N > 0 {
		e.untold, e.total = e.untold+r.N, e.total+r.N
	}
	e.first, e.last = min(e.first, r.First.UnixMicro()), max(e.last, r.Last.UnixMicro())
	if lasts {
		e.ends = now + l.rules.Settle.Microseconds()
		if r.About != "" {
			e.about = r.About
		}
	}
	return nil
}

// open begins an episode.
func (l *Ledger) open(e *entry, r Report, now int64) *Telling {
	*e = entry{opened: now, ends: now + l.window(r.Kind), total: max(1, r.N), first: r.First.UnixMicro(),
		last: r.Last.UnixMicro(), about: r.About}
	return l.claim(r.Key, e, Began, e.total, now)
}

func (l *Ledger) window(kind string) int64 {
	if l.rules.Lasts(kind) {
		return l.rules.Settle.Microseconds()
	}
	return l.rules.Window.Microseconds()
}

// claim has the instance tell something.
func (l *Ledger) claim(key Key, e *entry, step Step, said, now int64) *Telling {
	e.telling, e.said, e.tries = step, said, 0
	e.number++
	return l.take(key, e, now)
}

// take gives the instance the lease of what is to be told.
func (l *Ledger) take(key Key, e *entry, now int64) *Telling {
	e.tries++
	e.holder, e.leased = l.holder, now+l.rules.Lease.Microseconds()
	return &Telling{Key: key, Step: e.telling, Count: e.said, Total: e.total, First: fromMicro(e.first),
		Last: fromMicro(e.last), Opened: e.opened, Number: e.number, About: e.about, Again: e.tries > 1}
}

// due does what the time has come for. It reports whether the episode is over, and whether a telling was given up.
func (l *Ledger) due(key Key, e *entry, now int64) (t *Telling, over, gaveUp bool) {
	if e.opened > now { // the clock went back: no end may be further away than it ever was
		e.ends = min(e.ends, now+l.window(key.Kind))
	}
	if e.telling != "" {
		if lease := l.rules.Lease.Microseconds(); e.leased > now && e.leased <= now+2*lease {
			return nil, false, false
		}
		if e.tries < maxTries {
			return l.take(key, e, now), false, false
		}
		ended := e.telling == Ended
		e.telling = ""
		return nil, ended, true
	}
	switch {
	case now < e.ends:
		return nil, false, false
	case l.rules.Lasts(key.Kind):
		return l.claim(key, e, Ended, e.total, now), false, false
	case e.untold == 0:
		return nil, true, false
	}
	said := e.untold
	e.untold, e.ends = 0, now+l.window(key.Kind)
	return l.claim(key, e, Counted, said, now), false, false
}

func fromMicro(us int64) time.Time { return time.UnixMicro(us).UTC() }

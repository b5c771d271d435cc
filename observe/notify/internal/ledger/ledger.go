// Package ledger decides when a notice is sent, and by which instance.
//
// What happens is reported under a Key. The first report of a key begins an episode, which the reporting instance must
// tell. Further reports are counted. At the end of a window the count is told, by whichever instance looks first, and
// the next window begins. A window without a report ends the episode. Of what lasts, such as an open breaker, each
// report moves the end on; then the end is told.
//
// An instance that must tell something has a lease on it, which it renews until it is through. If the instance dies,
// the lease ends, and another instance tells it again, once at most.
//
// A Ledger keeps its entries in memory, or in a table that the instances of a service share. The rules are the same.
package ledger

import (
	"cmp"
	"context"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

// Key is what an episode is about.
type Key struct{ Kind, Subject string }

// Step is the part of an episode that a Telling is about.
type Step string

// The steps of an episode.
const (
	Began   Step = "new"
	Counted Step = "summary"
	Ended   Step = "resolved"
)

// Rules say when an episode is over, and how many may begin.
type Rules struct {
	Window time.Duration // after which the count is told, and without a report the episode is over
	Settle time.Duration // the same for what lasts
	Lease  time.Duration // of what an instance tells
	MaxNew int64         // episodes of a kind that may begin within a minute
	// Lasts reports whether a kind is of what lasts, whose end is told.
	Lasts func(kind string) bool
	// Many is the kind under which the reports are counted for whose key no episode may begin.
	Many string
}

// newWithin is the time in which MaxNew episodes may begin.
const newWithin = time.Minute

// Report says that something happened, or of what lasts that it goes on.
type Report struct {
	Key
	N           int64 // how often; 0 if it goes on
	First, Last time.Time
	About       string // what the notice says of it
}

// Telling is a notice that the instance must send. The instance then calls Done.
type Telling struct {
	Key
	Step         Step
	Count, Total int64 // since the last notice, and in the whole episode
	First, Last  time.Time
	Opened       int64 // when the episode began; with Number the identity of the notice
	Number       int64
	About        string
}

// Ledger is the entries of one service. It is safe for concurrent use.
type Ledger struct {
	entries entries
	rules   Rules
	holder  string
}

// entries keep an entry for each key.
type entries interface {
	// alone runs work in a transaction that has all entries to itself, with the time in microseconds.
	alone(ctx context.Context, work func(tx transaction, now int64) error) error
	// due returns keys of entries that sweep has something to do with.
	due(ctx context.Context, lease time.Duration, limit int) ([]Key, error)
}

// transaction reads and writes entries.
type transaction interface {
	// get returns the entry of a key. That of a new key was never opened.
	get(Key) (*entry, error)
	put(Key, *entry) error
	remove(Key) error
}

// Report counts r. It returns what the caller must tell.
func (l *Ledger) Report(ctx context.Context, r Report) (t *Telling, err error) {
	r.Key.Subject = stored(r.Key.Subject)
	err = l.entries.alone(ctx, func(tx transaction, now int64) error {
		t = nil
		e, err := tx.get(r.Key)
		if err != nil {
			return err
		}
		if e.opened == 0 {
			t, err = l.begin(tx, r, now)
			return err
		}
		t = l.count(e, r, now)
		return tx.put(r.Key, e)
	})
	return t, err
}

// stored is the form of a subject in the table, and so in tellings. A form that was read is itself.
func stored(subject string) string {
	const hash, digits = "sha256:", 64
	if rest, is := strings.CutPrefix(subject, hash); is && len(rest) == digits {
		return subject
	}
	return database.Column(subject)
}

// begin begins an episode, unless too many began just now.
func (l *Ledger) begin(tx transaction, r Report, now int64) (*Telling, error) {
	counter := Key{".new", r.Kind}
	c, err := tx.get(counter)
	if err != nil {
		return nil, err
	}
	if c.opened+newWithin.Microseconds() <= now || c.opened > now { // or the clock went back
		c.opened, c.total = now, 0
	}
	c.total++
	c.ends = math.MaxInt64
	if err := tx.put(counter, c); err != nil {
		return nil, err
	}
	if c.total > l.rules.MaxNew && r.Kind != l.rules.Many {
		if r.N == 0 { // it goes on, and begins when there is room
			return nil, nil
		}
		r.Key, r.About = Key{l.rules.Many, r.Kind}, ""
	}
	e, err := tx.get(r.Key)
	if err != nil {
		return nil, err
	}
	t := l.count(e, r, now)
	return t, tx.put(r.Key, e)
}

// Sweep returns what is due to be told: counts and ends, and what another instance did not finish. Lost is the number
// of notices that two instances did not finish, which are given up.
func (l *Ledger) Sweep(ctx context.Context) (all []Telling, lost int, err error) {
	keys, err := l.entries.due(ctx, l.rules.Lease, 100)
	for _, key := range keys {
		if err != nil {
			break
		}
		var t *Telling
		gaveUp := false
		err = l.entries.alone(ctx, func(tx transaction, now int64) error {
			t, gaveUp = nil, false
			e, err := tx.get(key)
			if err != nil || e.opened == 0 {
				return err
			}
			var over bool
			if t, over, gaveUp = l.due(key, e, now); over {
				return tx.remove(key)
			}
			return tx.put(key, e)
		})
		if err == nil && t != nil {
			all = append(all, *t)
		}
		if err == nil && gaveUp {
			lost++
		}
	}
	return all, lost, err
}

// Done ends a telling, whether it reached a person or not. A telling that another instance has taken over is left to
// it.
func (l *Ledger) Done(ctx context.Context, t Telling) error {
	return l.settle(ctx, t, func(e *entry) { e.telling = "" })
}

// Release gives back a telling that the instance did not begin to send: another instance tells it at once.
func (l *Ledger) Release(ctx context.Context, t Telling) error {
	return l.settle(ctx, t, func(e *entry) { e.leased, e.tries = 0, max(0, e.tries-1) })
}

func (l *Ledger) settle(ctx context.Context, t Telling, change func(*entry)) error {
	return l.entries.alone(ctx, func(tx transaction, _ int64) error {
		e, err := tx.get(t.Key)
		if err != nil || e.telling != t.Step || e.number != t.Number || e.holder != l.holder {
			return err
		}
		if change(e); t.Step == Ended && e.telling == "" {
			return tx.remove(t.Key)
		}
		return tx.put(t.Key, e)
	})
}

// Renew keeps the leases of what the instance has in hand. Call it several times in a lease. What the instance has
// claimed and does not know of, because an answer was lost, is told again when its lease is over.
func (l *Ledger) Renew(ctx context.Context, inHand ...Key) error {
	if len(inHand) == 0 {
		return nil
	}
	return l.entries.alone(ctx, func(tx transaction, now int64) error {
		for _, key := range inHand {
			key.Subject = stored(key.Subject)
			e, err := tx.get(key)
			if err == nil && e.telling != "" && e.holder == l.holder {
				e.leased = now + l.rules.Lease.Microseconds()
				err = tx.put(key, e)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Turn reports whether the instance is the first to call it within every: one instance does what all would do.
func (l *Ledger) Turn(ctx context.Context, name string, every time.Duration) (mine bool, err error) {
	key := Key{".turn", name}
	err = l.entries.alone(ctx, func(tx transaction, now int64) error {
		e, err := tx.get(key)
		if mine = err == nil && (e.opened+every.Microseconds() <= now || e.opened > now); !mine {
			return err
		}
		e.opened, e.ends, e.holder = now, math.MaxInt64, l.holder
		return tx.put(key, e)
	})
	return mine, err
}

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
		Last: fromMicro(e.last), Opened: e.opened, Number: e.number, About: e.about}
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

// InMemory returns a Ledger of this process alone.
func InMemory(holder string, rules Rules) *Ledger {
	return &Ledger{&memory{entries: map[Key]*entry{}}, rules, holder}
}

// memory is entries in memory. MaxNew bounds how many there are.
type memory struct {
	mu      sync.Mutex
	entries map[Key]*entry
}

func (m *memory) alone(_ context.Context, work func(transaction, int64) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return work(m, time.Now().UnixMicro())
}

func (m *memory) get(key Key) (*entry, error) { return cmp.Or(m.entries[key], &entry{}), nil }

func (m *memory) put(key Key, e *entry) error {
	m.entries[key] = e
	return nil
}

func (m *memory) remove(key Key) error {
	delete(m.entries, key)
	return nil
}

func (m *memory) due(_ context.Context, lease time.Duration, limit int) (keys []Key, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now().UnixMicro()
	for key, e := range m.entries {
		free := e.leased <= now || e.leased > now+2*lease.Microseconds()
		if (e.telling != "" && free || e.telling == "" && e.ends <= now || e.opened > now && e.ends < math.MaxInt64) &&
			len(keys) < limit {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

package delayed

import (
	"context"
	"database/sql"
	"time"
)

// place is where a row stands in the order in which rows are taken.
type place struct{ ready, due, seq int64 }

// front is in front of all rows.
var front = place{ready: -1 << 62, due: -1 << 62, seq: -1 << 62}

// before is a place that has the row itself behind it.
func (p place) before() place { return place{p.ready, p.due, p.seq - 1} }

const (
	// dear is what a look from the start must cost before others begin further behind. With an old snapshot open,
	// PostgreSQL reads the index entries of all rows that have been deleted since, and so do others that keep old
	// versions.
	dear = 10 * time.Millisecond
	// dearEvery times its cost is how long such a look is not repeated. Until then a row in front is not seen: one
	// whose transaction committed after it was due, or one that another relay gave back.
	dearEvery = 100
	// margin is how far behind the database's clock the place stays where others begin: what is put is due from when
	// its statement ran, and seen when it is committed.
	margin = 10 * time.Second
	// passPage is how many rows of topics that refuse are passed over with one statement.
	passPage = 2000
)

// pass is what a relay remembers of where to begin. Rows of a topic that refuses stay where they are, unwritten, and
// are passed over once.
type pass struct {
	from   place
	fullAt time.Time        // when to begin at the start again
	first  map[string]place // in front of the first row of a topic that was passed over
}

// begin returns where to begin to look.
func (p *pass) begin(now time.Time) (from place, full bool) {
	if p.from == (place{}) || !now.Before(p.fullAt) {
		return front, true
	}
	return p.from, false
}

// looked notes what a look from the start has cost. A cheap one is repeated each time.
func (p *pass) looked(begun time.Time, cost time.Duration, reached place) {
	if cost < dear {
		p.from = place{}
		return
	}
	p.from, p.fullAt = reached, begun.Add(dearEvery*cost)
}

// recovered begins at the start again if a topic that was passed over refuses no more.
func (p *pass) recovered(t topics, now time.Time) {
	for name := range p.first {
		if t[name] == nil || !t.refusing(name, now) {
			p.from = place{}
			delete(p.first, name)
		}
	}
}

// probes returns the topics that may be tried again with one message, and how long it is until there is one.
func (p *pass) probes(t topics, now time.Time) (due []string, in time.Duration) {
	in = maxTopicWait
	for name := range p.first {
		if wait := t.wait(name, now); wait > 0 {
			in = min(in, wait)
		} else {
			due, in = append(due, name), 0
		}
	}
	return due, in
}

// refusing reports whether rows of the topic are passed over: nothing is published to it for now, or one message at a
// time.
func (t topics) refusing(name string, now time.Time) bool {
	one := t[name]
	return one != nil && (one.refusals >= maxRefusals || one.until.After(now))
}

// anyRefuses reports whether rows of any topic are passed over.
func (t topics) anyRefuses(now time.Time) bool {
	for name := range t {
		if t.refusing(name, now) {
			return true
		}
	}
	return false
}

// spot is a row as it is found without a lock.
type spot struct {
	place
	topic string
	size  int
	in    time.Duration // until it can be taken
}

// page returns at most n rows behind a place that can be taken before the horizon.
func (s *Store) page(ctx context.Context, from place, horizon time.Duration, n int) (spots []spot, err error) {
	args := append(append([]any{[]byte(s.service)}, s.dialect.after(from)...), horizon.Microseconds(), n)
	err = s.rows(ctx, func() { spots = nil }, func(rows *sql.Rows) error {
		var one spot
		var topic sql.RawBytes
		var us int64
		err := rows.Scan(&one.seq, &topic, &one.size, &one.ready, &one.due, &us)
		one.topic, one.in = string(topic), microseconds(us)
		spots = append(spots, one)
		return err
	}, s.statements.page, args...)
	return spots, err
}

// walk calls each with the rows of topics that do not refuse, in their order, until each returns false or none is left
// before the horizon. It moves p behind what it passed over in front of the first of them.
func (s *Store) walk(ctx context.Context, p *pass, t topics, horizon time.Duration, each func(spot) bool) error {
	if p.first == nil {
		p.first = make(map[string]place)
	}
	begun := time.Now()
	from, full := p.begin(begun)
	at, leading, n := from, true, passPage/10
	for done := false; !done; n = passPage {
		spots, err := s.page(ctx, at, horizon, n)
		if err != nil {
			return err
		}
		done = len(spots) < n
		for _, one := range spots {
			at = one.place
			if !t.refusing(one.topic, begun) {
				leading = false
				if done = !each(one); done {
					break
				}
				continue
			}
			if _, known := p.first[one.topic]; !known {
				p.first[one.topic] = one.before()
			}
			if leading = leading && one.in <= -margin; leading {
				from = one.place
			}
		}
	}
	if full {
		p.fullAt = begun.Add(max(time.Second, dearEvery*time.Since(begun)))
	}
	p.from = from
	return nil
}

// around finds rows to take without a lock. Of a topic that refused and may be tried again it finds one.
func (s *Store) around(ctx context.Context, n int, p *pass, t topics, now time.Time) (c choice, err error) {
	due, _ := p.probes(t, now)
	for _, name := range due {
		if err := s.probe(ctx, p, name, &c); err != nil {
			return c, err
		}
	}
	bytes := 0
	err = s.walk(ctx, p, t, 0, func(one spot) bool {
		bytes += max(0, one.size)
		c.more = len(c.seqs) >= n || bytes > maxBytes && len(c.seqs) > 0
		if !c.more {
			c.seqs = append(c.seqs, one.seq)
		}
		return !c.more
	})
	return c, err
}

// probe finds one row of a topic that may be tried again, where it was passed over. If it is there no more, the topic
// is looked for from the start.
func (s *Store) probe(ctx context.Context, p *pass, name string, c *choice) error {
	spots, err := s.page(ctx, p.first[name], 0, passPage/10)
	if err != nil {
		return err
	}
	for _, one := range spots {
		if one.topic == name {
			c.seqs = append(c.seqs, one.seq)
			p.first[name] = one.before()
			return nil
		}
	}
	delete(p.first, name)
	p.from = place{}
	return nil
}

// nextAround is as next, and passes over rows of topics that refuse.
func (s *Store) nextAround(ctx context.Context, p *pass, t topics,
	horizon time.Duration) (in time.Duration, ok bool, err error) {
	err = s.walk(ctx, p, t, horizon, func(one spot) bool {
		in, ok = one.in, true
		return false
	})
	return in, ok, err
}

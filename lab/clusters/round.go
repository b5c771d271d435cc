package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// result is the line of a round.
type result struct {
	Figure    string         `json:"figure"`
	On        string         `json:"on"`
	Round     string         `json:"round"`
	IDs       int            `json:"ids"`
	Lost      int            `json:"lost"`      // no effect and no letter in time
	Doubled   int            `json:"doubled"`   // two effects, or an effect and a letter
	Stuck     int            `json:"stuck"`     // still parked
	Uncounted int            `json:"uncounted"` // effects that no account has, or that it has twice
	Wrong     int            `json:"out_of_order"`
	Healthy   int            `json:"healthy_letters"`
	Letters   int            `json:"letters"`
	Gap       float64        `json:"longest_gap_seconds"`
	Whole     float64        `json:"cluster_whole_after_repair_seconds"` // for clients that are not ours
	FullAfter float64        `json:"full_rate_after_repair_seconds"`
	Ours      float64        `json:"full_rate_after_whole_seconds"`
	Pages     int            `json:"console_pages,omitempty"`
	Log       map[string]int `json:"log,omitempty"` // lines of an event
}

func (r *result) good() bool { return r.Lost+r.Doubled+r.Stuck+r.Uncounted+r.Wrong+r.Healthy == 0 }

const (
	begins   = 5 * time.Second // is when a round breaks something
	redrives = 3 * time.Second // is how long letters are redriven before that
)

func (p *plan) round(ctx context.Context, c *cluster, r round) (_ *result, err error) {
	name := fmt.Sprintf("clusters_%d", time.Now().UnixNano())
	if err := c.databases.make(ctx, name); err != nil {
		return nil, err
	}
	log := newLog()
	s := &service{cluster: c, topic: name, busy: r.busy, logger: log, parts: make(map[int64]int),
		failed: make(map[string]int)}
	if s.db, err = c.databases.open(name, 0); err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, s.db.Close())
		if err == nil {
			err = c.databases.drop(name)
		}
	}()
	if err := c.prepare(ctx, name); err != nil {
		return nil, err
	}
	for i := range instances {
		stop, err := s.start(ctx, i)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	published := make(chan []string, 1)
	var failed error
	go func() {
		ids, err := s.publish(ctx, p)
		failed = err
		published <- ids
	}()
	if err := sleep(ctx, begins); err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "clusters: %s: %s\n", c.name, r.name)
	pages := looks.Load()
	if s.repaired.Store(r.busy); r.busy { // redrives begin
		if err := sleep(ctx, redrives); err != nil {
			return nil, err
		}
	}
	broken := r.breaks(ctx, name)
	repaired := time.Now()
	s.at.Store(healing)
	whole := s.until(ctx, func() bool { return c.whole == nil || c.whole(ctx, name) == nil })
	s.until(ctx, func() bool { _, full := s.fullAfter(repaired, p.rate); return full })
	s.at.Store(healed)
	ids := <-published
	if err := errors.Join(broken, failed); err != nil {
		return nil, err
	}
	all := &result{Figure: "clusters", On: c.name, Round: r.name, IDs: len(ids)}
	err = s.settle(ctx, ids, time.Now().Add(p.within), all)
	full, _ := s.fullAfter(repaired, p.rate)
	all.Gap, all.Whole, all.FullAfter, all.Ours = s.gap.Seconds(), whole.Seconds(), full.Seconds(), max(0,
		full-whole).Seconds()
	all.Pages, all.Log = int(looks.Load()-pages), log.counts()
	return all, err
}

// settle waits until each message has its end, and counts.
func (s *service) settle(ctx context.Context, ids []string, until time.Time, all *result) error {
	for {
		open, err := s.account(ctx, ids, all)
		if err == nil && open == 0 {
			return nil
		}
		if time.Now().After(until) {
			all.Lost = open
			return err
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// recovers is how long messages are published after a repair, if the full rate does not come back.
const recovers = 30 * time.Second

// until waits until something is so, and returns how long that took.
func (s *service) until(ctx context.Context, so func() bool) time.Duration {
	began := time.Now()
	for !so() && time.Since(began) < recovers && sleep(ctx, 50*time.Millisecond) == nil {
	}
	return time.Since(began)
}

// fullAfter is how long after the repair a second began that had the rate of the publisher.
func (s *service) fullAfter(repaired time.Time, rate int) (after time.Duration, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, until := 0, repaired.UnixMilli()/part
	for at := until; at <= s.last.UnixMilli()/part; at++ {
		n += s.parts[at]
		if at-until == 1000/part {
			n -= s.parts[until]
			until++
		}
		if n*10 >= rate*9 {
			return max(0, time.UnixMilli(until*part).Sub(repaired)), true
		}
	}
	return max(0, s.last.Sub(repaired)), false
}

// account counts by id, and returns how many messages have no end yet.
func (s *service) account(ctx context.Context, ids []string, all *result) (open int, err error) {
	effects, err := s.counts(ctx, `SELECT id, count(*) FROM effects GROUP BY id`)
	if err != nil {
		return len(ids), err
	}
	letters, err := s.counts(ctx, `SELECT id, count(*) FROM spillway_dead_letters GROUP BY id`)
	if err != nil {
		return len(ids), err
	}
	open = judge(ids, effects, letters, s.busy, all)
	sums := map[string]*int{`SELECT (SELECT count(*) FROM effects) - (SELECT sum(effects) FROM accounts)`: &all.Uncounted}
	if s.busy && s.keyed {
		sums[`SELECT sum(wrong) FROM accounts`] = &all.Wrong
		sums[`SELECT count(*) FROM spillway_parked`] = &all.Stuck
	}
	for query, sum := range sums {
		if err := s.db.QueryRowContext(ctx, query).Scan(sum); err != nil {
			return len(ids), err
		}
	}
	return open, nil
}

// judge compares effects and letters with the ids. In a busy round each letter was redriven, and must have an effect.
func judge(ids []string, effects, letters map[string]int, busy bool, all *result) (open int) {
	all.Lost, all.Doubled, all.Healthy, all.Letters = 0, 0, 0, len(letters)
	for _, id := range ids {
		switch {
		case effects[id] == 0 && (busy || letters[id] == 0):
			open++
		case effects[id] > 1 || effects[id] > 0 && letters[id] > 0 && !busy:
			all.Doubled++
		}
		if letters[id] > 0 && !bad(id, busy) {
			all.Healthy++
		}
	}
	return open
}

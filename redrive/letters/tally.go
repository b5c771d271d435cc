package letters

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"
)

// tally is what a transaction changes in the numbers of each cause.
type tally map[string]*change

// change is that of one cause.
type change struct {
	by      map[Status]int
	arrived int
	first   time.Time // failures of the letters that arrived
	last    time.Time
	seq     int64 // of the letter that arrived last
	record  *record
}

func (t tally) of(cause string) *change {
	c := t[cause]
	if c == nil {
		c = &change{by: make(map[Status]int)}
		t[cause] = c
	}
	return c
}

// moved counts a letter that goes from one status to another. An empty status is none.
func (t tally) moved(cause string, from, to Status) {
	c := t.of(cause)
	if from != "" {
		c.by[from]--
	}
	if to != "" {
		c.by[to]++
	}
}

// arrived counts an arrival.
func (t tally) arrived(r *record, seq int64, first, last time.Time) {
	c := t.of(r.cause)
	c.record = r
	if c.arrived == 0 || first.Before(c.first) {
		c.first = first
	}
	if c.arrived == 0 || last.After(c.last) {
		c.last = last
	}
	c.arrived, c.seq = c.arrived+1, max(c.seq, seq)
}

// count writes a tally within the transaction that changes the letters. The numbers of a cause are spread over slots:
// two writers that count in different slots do not wait for each other. The causes come in one order, so that two
// transactions cannot wait for each other.
func (s *Store) count(ctx context.Context, tx *sql.Tx, slot int, t tally) error {
	minute := time.Now().Unix() / 60
	for _, cause := range slices.Sorted(maps.Keys(t)) {
		c := t[cause]
		args := []any{[]byte(s.service), s.db.Text(cause), slot}
		changed := c.arrived > 0
		for _, status := range Statuses() {
			args = append(args, c.by[status])
			changed = changed || c.by[status] != 0
		}
		if !changed {
			continue
		}
		if err := s.introduce(ctx, tx, c.record); err != nil {
			return err
		}
		if c.arrived > 0 {
			args = append(args, c.arrived, c.first.UnixMicro(), c.last.UnixMicro(), c.seq, minute, c.arrived)
		} else {
			args = append(args, 0, int64(math.MaxInt64), int64(math.MinInt64), 0, 0, 0)
		}
		if _, err := s.prepared.of(ctx, tx, s.statements.count).exec(ctx, args...); err != nil {
			return fmt.Errorf("count letters of cause %s: %w", cause, err)
		}
	}
	return nil
}

// maxKnown bounds the causes that a Store remembers as written.
const maxKnown = 10_000

// introduce writes the cause of a letter that arrived, unless this Store wrote it before.
func (s *Store) introduce(ctx context.Context, tx *sql.Tx, r *record) error {
	if r == nil || s.known.has(r.cause) {
		return nil
	}
	l := &r.letter
	_, err := s.exec(ctx, tx, `INSERT INTO spillway_letter_causes (service, cause, dead_letter_topic, origin_topic, handler, class, reason, type, stack_hash, description)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) `+s.statements.unless, []byte(s.service), s.db.Text(r.cause), []byte(r.topic), []byte(l.Origin.Topic), []byte(l.Origin.Handler),
		s.db.Text(l.Failure.Class.String()), s.db.Bytes(l.Failure.Reason), s.db.Bytes(l.Failure.Type),
		s.db.Bytes(l.Failure.StackHash),
		s.db.Bytes("")) // a cause outlives its letters, and a description can name a person
	if err != nil {
		return fmt.Errorf("write cause %s: %w", r.cause, err)
	}
	return nil
}

// knownCauses are causes whose rows are committed, at most maxKnown of them. A row is never deleted.
type knownCauses struct {
	mu     sync.RWMutex
	causes map[string]struct{}
}

func (k *knownCauses) has(cause string) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	_, has := k.causes[cause]
	return has
}

func (k *knownCauses) add(cause string) {
	if k.has(cause) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.causes == nil || len(k.causes) >= maxKnown {
		k.causes = make(map[string]struct{})
	}
	k.causes[cause] = struct{}{}
}

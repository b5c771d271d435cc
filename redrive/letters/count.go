package letters

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
)

// Count returns the number of letters that f chooses. Filter.Limit is not used. With an error there is no number: it
// returns 0.
func (s *Store) Count(ctx context.Context, f Filter) (int, error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	if err := f.validateInOrder(); err != nil {
		return 0, err
	}
	n, err := s.countLetters(ctx, f)
	if err != nil {
		return 0, wrapped("count", err) // what was counted so far is no number
	}
	return n, nil
}

func (s *Store) countLetters(ctx context.Context, f Filter) (n int, err error) {
	all := f
	if all.MaxSeq = 0; all.causesOnly() {
		few, err := s.fewBehind(ctx, f.MaxSeq)
		switch {
		case err != nil:
			return 0, err
		case few:
			return s.countByCauses(ctx, all, f.MaxSeq)
		}
	}
	if len(f.Metadata) > 0 {
		err = s.scan(ctx, f, false, false, 0, func(candidate) bool { n++; return true })
		return n, err
	}
	r, err := s.routeOf(ctx, f)
	if err != nil {
		return 0, err
	}
	err = s.each(ctx, r, func(f Filter) (bool, error) {
		w, some := s.where(f), 0
		err := s.readPlanned(ctx, func() {}, func(rows *sql.Rows) error {
			return rows.Scan(&some)
		}, `SELECT COUNT(*) FROM spillway_dead_letters`+r.hint+w.String(), w.args...)
		n += some
		return true, err
	})
	return n, err
}

// fewBehind reports whether at most a window of Seqs is behind upTo, which may be 0 for none.
func (s *Store) fewBehind(ctx context.Context, upTo int64) (bool, error) {
	if upTo == 0 {
		return true, nil
	}
	last, err := s.lastSeq(ctx)
	return err == nil && last-upTo <= window, err
}

// countByCauses counts from the numbers of the causes. If upTo is a Seq, letters behind it are taken off, by the same
// statement: both are of one moment.
func (s *Store) countByCauses(ctx context.Context, f Filter, upTo int64) (n int, err error) {
	s.compared(ctx)
	tables, number, w := s.numbers(f)
	query, read := `SELECT COALESCE(`+number+`, 0) FROM `+tables+w.String(), s.read
	if upTo > 0 {
		f.After = upTo
		behind := s.where(f)
		query = `SELECT (` + query + `) - (SELECT COUNT(*) FROM spillway_dead_letters` + behind.String() + `)`
		read = s.readPlanned
		w.args = append(w.args, behind.args...)
	}
	err = read(ctx, func() {}, func(rows *sql.Rows) error { return rows.Scan(&n) }, query, w.args...)
	return n, err
}

// CountTopics returns the number of letters that f chooses by their origin topic, which may be empty.
func (s inner) CountTopics(ctx context.Context, f Filter) (map[string]int, error) {
	counted, err := s.countCauses(ctx, f, 0)
	if err != nil {
		return nil, wrapped("count by topic", err)
	}
	topics := make(map[string]string, len(counted))
	for some := range slices.Chunk(slices.Sorted(maps.Keys(counted)), maxCauses) {
		w := new(where)
		w.and("service = ?", asBytes(s.service))
		anyIn(w, "cause", some, s.db.Text)
		err := s.read(ctx, func() {}, func(rows *sql.Rows) error {
			var cause string
			var topic []byte
			err := rows.Scan(&cause, &topic)
			topics[cause] = string(topic)
			return err
		}, `SELECT cause, origin_topic FROM spillway_letter_causes`+w.String(), w.args...)
		if err != nil {
			return nil, wrapped("count by topic", err)
		}
	}
	byTopic := make(map[string]int)
	for cause, c := range counted {
		byTopic[topics[cause]] += c.n
	}
	return byTopic, nil
}

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
		if _, err := tx.ExecContext(ctx, s.statements.count, args...); err != nil {
			return fmt.Errorf("count letters of cause %s: %w", cause, err)
		}
	}
	return nil
}

// maxKnown bounds the causes that a Store remembers as written.
const maxKnown = 10_000

// introduce writes the cause of a letter that arrived, unless this Store wrote it before. A cause outlives its letters:
// it has no description, which can name a person.
func (s *Store) introduce(ctx context.Context, tx *sql.Tx, r *record) error {
	if r == nil || s.known.has(r.cause) {
		return nil
	}
	l := &r.letter
	_, err := s.exec(ctx, tx, `INSERT INTO spillway_letter_causes (service, cause, dead_letter_topic, origin_topic, handler, class, reason, type, stack_hash)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) `+s.statements.unless, []byte(s.service), s.db.Text(r.cause), []byte(r.topic), []byte(l.Origin.Topic), []byte(l.Origin.Handler),
		s.db.Text(l.Failure.Class.String()), s.db.Bytes(l.Failure.Reason), s.db.Bytes(l.Failure.Type),
		s.db.Bytes(l.Failure.StackHash))
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

// numbers are numbers of letters, in the order of Statuses.
type numbers []int

func newNumbers() numbers { return make(numbers, len(Statuses())) }

// into is what a row of numbers is scanned into.
func (n numbers) into() []any {
	into := make([]any, len(n))
	for i := range n {
		into[i] = &n[i]
	}
	return into
}

func (n numbers) byStatus() map[Status]int {
	all := make(map[Status]int, len(n))
	for i, status := range Statuses() {
		all[status] = n[i]
	}
	return all
}

// statusColumns are the columns of the numbers, each in a format, in the order of Statuses.
func statusColumns(format string) string {
	var columns []string
	for _, status := range Statuses() {
		columns = append(columns, fmt.Sprintf(format, status))
	}
	return strings.Join(columns, ", ")
}

// Totals returns the numbers of all letters of the service. They are kept with the letters: none is counted.
func (s inner) Totals(ctx context.Context) (map[Status]int, error) {
	s.compared(ctx)
	n := newNumbers()
	err := s.read(ctx, func() {}, func(rows *sql.Rows) error { return rows.Scan(n.into()...) },
		`SELECT `+statusColumns("COALESCE(SUM(%s), 0)")+` FROM spillway_letter_counts WHERE service = ? AND cause <> ''`, asBytes(s.service))
	if err != nil {
		return nil, wrapped("count by status", err)
	}
	return n.byStatus(), nil
}

// OldestWaiting returns, by cause, when the waiting letter that was stored first failed first. A cause without a
// waiting letter has no entry. Each cause costs a look into an index, however many letters it has.
func (s inner) OldestWaiting(ctx context.Context, causes ...string) (map[string]time.Time, error) {
	oldest := make(map[string]time.Time, len(causes))
	for some := range slices.Chunk(causes, oldestAtOnce) {
		var each []string
		var args []any
		for _, cause := range some {
			w := s.where(Filter{Causes: []string{cause}, Statuses: []Status{StatusWaiting}})
			each = append(each, `SELECT * FROM (SELECT cause, first_failed_at, stored_at FROM spillway_dead_letters`+
				s.statements.byCause+w.String()+` ORDER BY seq LIMIT 1) AS c`)
			args = append(args, w.args...)
		}
		err := s.read(ctx, func() {}, func(rows *sql.Rows) error {
			var cause string
			var first, stored int64
			err := rows.Scan(&cause, &first, &stored)
			if first == 0 {
				first = stored
			}
			oldest[cause] = fromMicro(first)
			return err
		}, strings.Join(each, "\nUNION ALL "), args...)
		if err != nil {
			return nil, wrapped("find the oldest", err)
		}
	}
	return oldest, nil
}

// OldestAwake returns the waiting letter that was stored first, and is of no cause that is snoozed; or none. If a cause
// is snoozed, it looks at the MaxLimit causes with the most letters.
func (s inner) OldestAwake(ctx context.Context, notes map[string]inside.CauseNote) ([]Head, error) {
	f := Filter{Limit: 1}
	if inside.AnySnoozed(notes) {
		groups, err := s.Groups(ctx, Filter{Limit: MaxLimit})
		if err != nil {
			return nil, err
		}
		var awake []string
		for _, g := range groups {
			if !notes[g.Cause].Snoozed {
				awake = append(awake, g.Cause)
			}
		}
		oldest, err := s.OldestWaiting(ctx, awake...)
		if err != nil || len(oldest) == 0 {
			return nil, err
		}
		first := slices.SortedFunc(maps.Keys(oldest), func(a, b string) int { return oldest[a].Compare(oldest[b]) })
		f.Causes = first[:1]
	}
	return s.Heads(ctx, f)
}

// oldestAtOnce is how many causes one statement of OldestWaiting looks up.
const oldestAtOnce = 50

// Arrivals returns the arrivals of each cause, in the order of the causes, at most MaxListed of them. A
// letter that arrives again counts each time.
func (s inner) Arrivals(ctx context.Context, causes ...string) ([]inside.Arrivals, error) {
	if len(causes) == 0 {
		return nil, nil
	}
	now := time.Now().Unix() / 60
	first := now - 59
	w := new(where)
	w.and("service = ?", asBytes(s.service))
	anyIn(w, "cause", causes, s.db.Text)
	w.and("minute >= ?", first)
	counted := make(map[string]*[60]int)
	err := s.read(ctx, func() { clear(counted) }, func(rows *sql.Rows) error {
		var cause, recent string
		var minute int64
		var n int
		if err := rows.Scan(&cause, &minute, &n, &recent); err != nil {
			return err
		}
		if counted[cause] == nil {
			counted[cause] = new([60]int)
		}
		eachMinute(minute, n, recent, func(minute int64, n int) {
			if minute >= first { // the clock of another process may be ahead
				counted[cause][min(minute, now)-first] += n
			}
		})
		return nil
	}, `SELECT cause, minute, in_minute, recent FROM spillway_letter_counts`+w.String(), w.args...)
	if err != nil {
		return nil, wrapped("read arrivals", err)
	}
	all := make([]inside.Arrivals, len(causes))
	for i, cause := range causes {
		all[i] = inside.Arrivals{Cause: cause, From: time.Unix(first*60, 0).UTC()}
		if n := counted[cause]; n != nil {
			all[i].PerMinute = *n
		}
	}
	return all, nil
}

// eachMinute calls add with the latest minute, and with those that the column recent holds: no minute is more than 60
// before the one in front of it. What is behind a damaged entry, or cut, is left out.
func eachMinute(minute int64, n int, recent string, add func(minute int64, n int)) {
	add(minute, n)
	for {
		entry, rest, whole := strings.Cut(recent, " ")
		modulo, number, ok := strings.Cut(entry, ":")
		before, err := strconv.ParseInt(modulo, 10, 64)
		if !whole || !ok || err != nil || before < 0 || before > 999 {
			return
		}
		if n, err = strconv.Atoi(number); err != nil || n < 0 {
			return
		}
		minute -= (minute%1000 - before + 1000) % 1000
		add(minute, n)
		recent = rest
	}
}

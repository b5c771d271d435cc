package prom

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway/observe/internal/few"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// backlog is the collector of the letters in the store.
type backlog struct {
	source *source[lettersAnswer]
	state  sourceState
	labels *bounded

	byStatus, waiting, arrived, oldest, oldestOfAll, newest, causes *prometheus.Desc
}

// lettersAnswer is what the store says. It is small: the letters of further causes are only a number.
type lettersAnswer struct {
	Totals map[letters.Status]int
	Causes int
	Oldest time.Time // when the letter failed first that waits longest; zero if none waits
	Groups []group   // those with the most letters
	Others int       // letters of further causes
	Newest []newest
}

// group is the letters of one cause.
type group struct {
	Cause, Topic, Handler, Class, Reason string
	Waiting, Arrived                     int
	Oldest                               time.Time
}

// newest is when the newest of the causes with these values began.
type newest struct {
	Topic, Handler, Class, Reason string
	Began                         time.Time
}

func newBacklog(source *source[lettersAnswer], labels *bounded) *backlog {
	cause := []string{"cause", "topic", "handler", "class", "reason"}
	return &backlog{source: source, state: newSourceState("letters"), labels: labels,
		byStatus: newDesc("letters", "Dead letters in the store, by their status.", "status"),
		waiting: newDesc("letters_waiting", "Dead letters that wait, by cause. The causes with the fewest letters are "+
			"the cause other.", cause...),
		arrived: newDesc("letters_arrived_total", "How often letters of a cause arrived, ever.", cause...),
		oldest: newDesc("letters_cause_oldest_timestamp_seconds", "When the letter of a cause failed first that waits "+
			"longest, as Unix time.", cause...),
		oldestOfAll: newDesc("letters_oldest_timestamp_seconds",
			"When the letter failed first that waits longest, as Unix "+
				"time. There is no value if none waits."),
		newest: newDesc("letters_newest_cause_timestamp_seconds", "When the newest cause with waiting letters began, "+
			"as Unix time.", cause[1:]...),
		causes: newDesc("letters_causes", "Causes whose letters wait, at most 1,000."),
	}
}

func (b *backlog) Describe(ch chan<- *prometheus.Desc) {
	b.state.describe(ch)
	for _, d := range []*prometheus.Desc{b.byStatus, b.waiting, b.arrived, b.oldest, b.oldestOfAll, b.newest,
		b.causes} {
		ch <- d
	}
}

func (b *backlog) Collect(ch chan<- prometheus.Metric) {
	now, at, ok := b.source.read()
	b.state.collect(ch, at, ok)
	if !b.source.fresh(at, ok) {
		return
	}
	for status, n := range now.Totals {
		if status != letters.StatusErased { // nothing is left of these
			gauge(ch, b.byStatus, float64(n), string(status))
		}
	}
	gauge(ch, b.causes, float64(now.Causes))
	if !now.Oldest.IsZero() {
		gauge(ch, b.oldestOfAll, unix(now.Oldest))
	}
	others := now.Others
	for i, g := range now.Groups {
		if i >= maxCauses { // of an instance of another version
			others += g.Waiting
			continue
		}
		labels := append([]string{clean(g.Cause)}, b.bound(g.Topic, g.Handler, g.Class, g.Reason)...)
		gauge(ch, b.waiting, float64(g.Waiting), labels...)
		ch <- prometheus.MustNewConstMetric(b.arrived, prometheus.CounterValue, float64(g.Arrived), labels...)
		if !g.Oldest.IsZero() {
			gauge(ch, b.oldest, unix(g.Oldest), labels...)
		}
	}
	if others > 0 {
		gauge(ch, b.waiting, float64(others), few.Other, few.Other, few.Other, few.Other, few.Other)
	}
	began := make(map[[4]string]time.Time) // several can have the same values once these are bounded
	for _, n := range now.Newest {
		values := [4]string(b.bound(n.Topic, n.Handler, n.Class, n.Reason))
		if n.Began.After(began[values]) {
			began[values] = n.Began
		}
	}
	for values, at := range began {
		gauge(ch, b.newest, unix(at), values[:]...)
	}
}

func (b *backlog) bound(topic, handler, class, reason string) []string {
	return []string{b.labels.value("topic", topic), b.labels.value("handler", handler), clean(class),
		b.labels.value("reason", reason)}
}

// askLetters asks the store. All numbers are kept with the letters: no statement counts letters.
func askLetters(ctx context.Context, store *letters.Store) (a lettersAnswer, err error) {
	if a.Totals, err = store.Inside().Totals(ctx); err != nil {
		return a, err
	}
	waiting := []letters.Status{letters.StatusWaiting}
	groups, err := store.Groups(ctx, letters.Filter{Statuses: waiting, Limit: letters.MaxLimit})
	if err != nil {
		return a, err
	}
	first, err := store.Heads(ctx, letters.Filter{Statuses: waiting, Limit: 1})
	if err != nil {
		return a, err
	}
	if len(first) > 0 {
		if a.Oldest = first[0].FirstFailedAt; a.Oldest.IsZero() {
			a.Oldest = first[0].StoredAt
		}
	}
	a.Causes = len(groups)
	a.Newest = newestOf(groups, maxCauses)
	// Of causes with equally many letters the oldest come first: an attacker who makes causes makes no new series.
	slices.SortStableFunc(groups, func(a, b letters.Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), a.FirstFailedAt.Compare(b.FirstFailedAt),
			cmp.Compare(a.Cause, b.Cause))
	})
	kept := groups[:min(len(groups), maxCauses)]
	for _, g := range groups[len(kept):] {
		a.Others += g.Count
	}
	causes := make([]string, len(kept))
	for i, g := range kept {
		causes[i] = g.Cause
	}
	oldest, err := store.Inside().OldestWaiting(ctx, causes...)
	for _, g := range kept {
		a.Groups = append(a.Groups,
			group{g.Cause, clean(g.Topic), clean(g.Handler), g.Class.String(), clean(g.Reason), g.Count, g.Arrived,
				oldest[g.Cause]})
	}
	return a, err
}

// newestOf returns when the newest causes began, at most n values.
func newestOf(groups []letters.Group, n int) (all []newest) {
	groups = slices.SortedFunc(slices.Values(groups), func(a, b letters.Group) int {
		return b.FirstFailedAt.Compare(a.FirstFailedAt)
	})
	seen := make(map[newest]bool)
	for _, g := range groups {
		of := newest{Topic: clean(g.Topic), Handler: clean(g.Handler), Class: g.Class.String(), Reason: clean(g.Reason)}
		if len(all) == n || seen[of] {
			continue
		}
		seen[of] = true
		of.Began = g.FirstFailedAt
		all = append(all, of)
	}
	return all
}

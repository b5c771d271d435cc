package prom

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// backlog reads the letters that wait in the store at a scrape, at most once an interval.
type backlog struct {
	ask    func(context.Context) (answer, error)
	config Config
	labels *bounded

	waiting, oldest, arrived, all, up, askedAt *prometheus.Desc

	mu     sync.Mutex // held while it asks: scrapes at the same time wait for one answer
	answer answer     // the last one
	ok     bool
	next   time.Time
}

// answer is what the store says.
type answer struct {
	groups []letters.Group
	oldest time.Time // when the letter failed first that waits longest; zero if none waits
	at     time.Time // of the answer; zero if there is none
}

func newBacklog(store *letters.Store, config Config, labels *bounded) *backlog {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "letters", name), help, labels, nil)
	}
	cause := []string{"cause", "topic", "handler", "class", "reason"}
	return &backlog{config: config, labels: labels,
		ask: func(ctx context.Context) (answer, error) {
			var a answer
			err := a.ask(ctx, store)
			return a, err
		},
		waiting: desc("waiting", "Dead letters that wait, by cause. The causes with the fewest letters are the cause other.", cause...),
		oldest:  desc("oldest_timestamp_seconds", "When the letter failed first that waits longest, as Unix time. There is no value if none waits."),
		arrived: desc("arrived_total", "How often letters of a cause arrived, ever.", cause...),
		all:     desc("causes", "Causes whose letters wait."),
		up:      desc("up", "1 if the dead-letter store answered when it was asked last."),
		askedAt: desc("asked_timestamp_seconds", "When the dead-letter store answered last, as Unix time; 0 is never."),
	}
}

func (b *backlog) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{b.waiting, b.oldest, b.arrived, b.all, b.up, b.askedAt} {
		ch <- d
	}
}

func (b *backlog) Collect(ch chan<- prometheus.Metric) {
	now, ok := b.read()
	value := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	up := 0.
	if ok {
		up = 1
	}
	value(b.up, prometheus.GaugeValue, up)
	value(b.askedAt, prometheus.GaugeValue, unix(now.at))
	if now.at.IsZero() || !ok && time.Since(now.at) > b.config.Stale {
		return
	}
	value(b.all, prometheus.GaugeValue, float64(len(now.groups)))
	if !now.oldest.IsZero() {
		value(b.oldest, prometheus.GaugeValue, unix(now.oldest))
	}
	waiting := 0
	for i, g := range now.groups {
		if i >= b.config.MaxCauses {
			waiting += g.Count
			continue
		}
		labels := []string{clean(g.Cause), b.labels.value("topic", g.Topic), b.labels.value("handler", g.Handler), g.Class.String(), b.labels.value("reason", g.Reason)}
		value(b.waiting, prometheus.GaugeValue, float64(g.Count), labels...)
		value(b.arrived, prometheus.CounterValue, float64(g.Arrived), labels...)
	}
	if waiting > 0 {
		value(b.waiting, prometheus.GaugeValue, float64(waiting), other, other, other, other, other)
	}
}

// read returns the last answer, or a new one if its time has come, and whether the store answered when it was asked last.
func (b *backlog) read() (answer, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !time.Now().Before(b.next) {
		ctx, cancel := context.WithTimeout(context.Background(), b.config.Timeout)
		defer cancel()
		now, err := b.ask(ctx)
		if b.ok = err == nil; b.ok {
			b.answer = now
			b.answer.at = time.Now()
		}
		b.next = time.Now().Add(b.config.Interval + rand.N(b.config.Interval/10+1))
	}
	return b.answer, b.ok
}

func (a *answer) ask(ctx context.Context, store *letters.Store) (err error) {
	waiting := []letters.Status{letters.StatusWaiting}
	if a.groups, err = store.Groups(ctx, letters.Filter{Statuses: waiting, Limit: letters.MaxLimit}); err != nil {
		return err
	}
	first, err := store.Heads(ctx, letters.Filter{Statuses: waiting, Limit: 1})
	if err == nil && len(first) > 0 {
		if a.oldest = first[0].FirstFailedAt; a.oldest.IsZero() {
			a.oldest = first[0].StoredAt
		}
	}
	return err
}

func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

package prom

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/observe/internal/series"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
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
		gauge(ch, b.waiting, float64(others), series.Other, series.Other, series.Other, series.Other, series.Other)
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
	if a.Totals, err = hidden.Of(store).Totals(ctx); err != nil {
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
	oldest, err := hidden.Of(store).OldestWaiting(ctx, causes...)
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

// maxCampaigns is how many campaigns have series of their own, the newest of those that have not ended.
const maxCampaigns = 20

// redriving is the collector of campaigns.
type redriving struct {
	source                           *source[campaignsAnswer]
	state                            sourceState
	states, stopped, blocked, inHand *prometheus.Desc
}

type campaignsAnswer struct {
	Summary inside.Summary[campaigns.State]
	Live    []campaigns.Campaign
}

func newRedriving(source *source[campaignsAnswer]) *redriving {
	return &redriving{source: source, state: newSourceState("campaigns"),
		states: newDesc("campaigns", "Campaigns, by their state.", "state"),
		blocked: newDesc("policies_blocked_causes",
			"Causes that a standing policy leaves to a person, until one releases them."),
		stopped: newDesc("campaigns_stopped", "Campaigns that stopped themselves, because too many letters failed again, "+
			"and wait to be resumed."),
		inHand: newDesc("campaign_letters", "Letters of a campaign that has not ended, by what became of them. The newest "+
			"20 campaigns have series.", "campaign", "outcome"),
	}
}

func (r *redriving) Describe(ch chan<- *prometheus.Desc) {
	r.state.describe(ch)
	ch <- r.states
	ch <- r.stopped
	ch <- r.blocked
	ch <- r.inHand
}

func (r *redriving) Collect(ch chan<- prometheus.Metric) {
	now, at, ok := r.source.read()
	r.state.collect(ch, at, ok)
	if !r.source.fresh(at, ok) {
		return
	}
	for _, state := range campaigns.States {
		gauge(ch, r.states, float64(now.Summary.States[state]), string(state))
	}
	gauge(ch, r.stopped, float64(now.Summary.Stopped))
	gauge(ch, r.blocked, float64(now.Summary.Blocked))
	for _, n := range now.Live {
		id := clean(n.ID)
		for outcome, letters := range map[string]int{
			"pending": n.Pending, "not_heard": n.NotHeard, "succeeded": n.Succeeded, "failed_again": n.FailedAgain,
			"quarantined": n.Quarantined, "refused": n.Refused, "failed": n.Failed, "gone": n.Gone,
		} {
			gauge(ch, r.inHand, float64(letters), id, outcome)
		}
	}
}

func askCampaigns(ctx context.Context, c *campaigns.Campaigns) (a campaignsAnswer, err error) {
	if a.Summary, err = hidden.Of(c).Summary(ctx); err != nil {
		return a, err
	}
	var live []campaigns.State
	for _, s := range campaigns.States {
		if !s.Ended() {
			live = append(live, s)
		}
	}
	a.Live, err = c.List(ctx, campaigns.List{States: live, Limit: maxCampaigns})
	return a, err
}

func (m *Metrics) scrapedCampaigns(ctx context.Context, c *campaigns.Campaigns) (prometheus.Collector, error) {
	store := hidden.Of(hidden.Of(c).Store())
	source, err := newSource(ctx, store.DB(), store.Service(), "campaigns/1", &m.config,
		func(ctx context.Context) (campaignsAnswer, error) {
			return askCampaigns(ctx, c)
		})
	if err != nil {
		return nil, err
	}
	return newRedriving(source), nil
}

// parked is the collector of the messages that wait in the order of their key.
type parked struct {
	source                            *source[[]sequence.Standing]
	state                             sourceState
	labels                            *bounded
	sequences, held, waiting, overdue *prometheus.Desc
}

func newParked(source *source[[]sequence.Standing], labels *bounded) *parked {
	return &parked{source: source, state: newSourceState("sequences"), labels: labels,
		sequences: newDesc("sequences", "Keys of a partition with parked messages.", "topic"),
		held: newDesc("sequences_held", "Keys of a partition whose messages are held until a person decides.",
			"topic"),
		waiting: newDesc("sequences_waiting", "Messages that are parked in the order of their key.", "topic"),
		overdue: newDesc("sequences_overdue_seconds",
			"How long the first parked message of a key is due and not begun; 0 if "+
				"none is. Held ones do not count.", "topic"),
	}
}

func (p *parked) Describe(ch chan<- *prometheus.Desc) {
	p.state.describe(ch)
	for _, d := range []*prometheus.Desc{p.sequences, p.held, p.waiting, p.overdue} {
		ch <- d
	}
}

func (p *parked) Collect(ch chan<- prometheus.Metric) {
	now, at, ok := p.source.read()
	p.state.collect(ch, at, ok)
	if !p.source.fresh(at, ok) {
		return
	}
	type sum struct{ sequences, held, waiting, overdue float64 }
	sums := make(map[string]sum)
	for _, s := range now {
		topic := p.labels.value("topic", s.Topic)
		n := sums[topic]
		sums[topic] = sum{n.sequences + float64(s.Sequences), n.held + float64(s.Held), n.waiting + float64(s.Messages),
			max(n.overdue, s.Overdue.Seconds())}
	}
	for topic, n := range sums {
		gauge(ch, p.sequences, n.sequences, topic)
		gauge(ch, p.held, n.held, topic)
		gauge(ch, p.waiting, n.waiting, topic)
		gauge(ch, p.overdue, n.overdue, topic)
	}
}

// scrapedSequences returns no collector for a channel without such a table.
func (m *Metrics) scrapedSequences(ctx context.Context, channel *spillway.Channel) ([]prometheus.Collector, error) {
	table, err := sequence.TableOf(ctx, channel)
	if err != nil || table == nil {
		return nil, err
	}
	source, err := newSource(ctx, table.DB(), table.Service(), "sequences/1", &m.config, table.Standing)
	if err != nil {
		return nil, err
	}
	return []prometheus.Collector{newParked(source, m.labels)}, nil
}

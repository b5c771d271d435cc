package prom

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/observe/internal/series"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// lettersAnswer is what the store says. It is small: the letters of further causes are only a number.
type lettersAnswer struct {
	Totals map[letters.Status]int
	Causes int
	Oldest time.Time // when the letter failed first that waits longest, of no snoozed cause; zero if none waits
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

// lettersSource are the letters in the store.
func (m *Metrics) lettersSource(ctx context.Context, store *letters.Store) (prometheus.Collector, error) {
	cause := []string{"cause", "topic", "handler", "class", "reason"}
	byStatus := newDesc("letters", "Dead letters in the store, by their status.", "status")
	waiting := newDesc("letters_waiting", "Dead letters that wait, by cause. The causes with the fewest letters are "+
		"the cause other.", cause...)
	arrived := newDesc("letters_arrived_total", "How often letters of a cause arrived, ever.", cause...)
	oldest := newDesc("letters_cause_oldest_timestamp_seconds", "When the letter of a cause failed first that waits "+
		"longest, as Unix time.", cause...)
	oldestOfAll := newDesc("letters_oldest_timestamp_seconds", "When the letter failed first that waits longest, as Unix "+
		"time. Snoozed causes are left out. There is no value if none waits.")
	latest := newDesc("letters_newest_cause_timestamp_seconds", "When the newest cause with waiting letters began, as Unix "+
		"time. Snoozed causes are left out.", cause[1:]...)
	causes := newDesc("letters_causes", "Causes whose letters wait, at most 1,000.")
	bound := func(topic, handler, class, reason string) []string {
		return []string{m.labels.value("topic", topic), m.labels.value("handler", handler), clean(class),
			m.labels.value("reason", reason)}
	}
	emit := func(ch chan<- prometheus.Metric, now lettersAnswer) {
		for status, n := range now.Totals {
			if status != letters.StatusErased { // nothing is left of these
				gauge(ch, byStatus, float64(n), string(status))
			}
		}
		gauge(ch, causes, float64(now.Causes))
		if !now.Oldest.IsZero() {
			gauge(ch, oldestOfAll, unix(now.Oldest))
		}
		others := now.Others
		for i, g := range now.Groups {
			if i >= maxCauses { // of an instance of another version
				others += g.Waiting
				continue
			}
			labels := append([]string{clean(g.Cause)}, bound(g.Topic, g.Handler, g.Class, g.Reason)...)
			gauge(ch, waiting, float64(g.Waiting), labels...)
			ch <- prometheus.MustNewConstMetric(arrived, prometheus.CounterValue, float64(g.Arrived), labels...)
			if !g.Oldest.IsZero() {
				gauge(ch, oldest, unix(g.Oldest), labels...)
			}
		}
		if others > 0 {
			gauge(ch, waiting, float64(others), series.Other, series.Other, series.Other, series.Other, series.Other)
		}
		began := make(map[[4]string]time.Time) // several can have the same values once these are bounded
		for _, n := range now.Newest {
			values := [4]string(bound(n.Topic, n.Handler, n.Class, n.Reason))
			if n.Began.After(began[values]) {
				began[values] = n.Began
			}
		}
		for values, at := range began {
			gauge(ch, latest, unix(at), values[:]...)
		}
	}
	ask := func(ctx context.Context) (lettersAnswer, error) { return askLetters(ctx, store) }
	return newScraped(ctx, hidden.Of(store).DB(), hidden.Of(store).Service(), "letters", m, ask, emit, byStatus, waiting,
		arrived, oldest, oldestOfAll, latest, causes)
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
	notes, err := hidden.Of(store).Notes(ctx)
	if err != nil {
		return a, err
	}
	first, err := hidden.Of(store).OldestAwake(ctx, notes)
	if err != nil {
		return a, err
	}
	if len(first) > 0 {
		if a.Oldest = first[0].FirstFailedAt; a.Oldest.IsZero() {
			a.Oldest = first[0].StoredAt
		}
	}
	a.Causes = len(groups)
	snoozed := func(g letters.Group) bool { return notes[g.Cause].Snoozed }
	a.Newest = newestOf(slices.DeleteFunc(slices.Clone(groups), snoozed), maxCauses)
	// Of causes with equally many letters the oldest come first: an attacker who makes causes makes no new series.
	slices.SortStableFunc(groups, func(a, b letters.Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), a.FirstFailedAt.Compare(b.FirstFailedAt),
			cmp.Compare(a.Cause, b.Cause))
	})
	kept := groups[:min(len(groups), maxCauses)]
	for _, g := range groups[len(kept):] {
		a.Others += g.Count
	}
	var causes []string
	for _, g := range kept {
		if !snoozed(g) {
			causes = append(causes, g.Cause)
		}
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

type campaignsAnswer struct {
	Summary inside.Summary[campaigns.State]
	Live    []campaigns.Campaign
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

// campaignsSource are the campaigns of the store's service.
func (m *Metrics) campaignsSource(ctx context.Context, c *campaigns.Campaigns) (prometheus.Collector, error) {
	states := newDesc("campaigns", "Campaigns, by their state.", "state")
	blocked := newDesc("policies_blocked_causes",
		"Causes that a standing policy leaves to a person, until one releases them.")
	stopped := newDesc("campaigns_stopped", "Campaigns that stopped themselves, because too many letters failed again, "+
		"and wait to be resumed.")
	inHand := newDesc("campaign_letters", "Letters of a campaign that has not ended, by what became of them. The newest "+
		"20 campaigns have series.", "campaign", "outcome")
	emit := func(ch chan<- prometheus.Metric, now campaignsAnswer) {
		for _, state := range campaigns.States {
			gauge(ch, states, float64(now.Summary.States[state]), string(state))
		}
		gauge(ch, stopped, float64(now.Summary.Stopped))
		gauge(ch, blocked, float64(now.Summary.Blocked))
		for _, n := range now.Live {
			for outcome, letters := range map[string]int{
				"pending": n.Pending, "not_heard": n.NotHeard, "succeeded": n.Succeeded, "failed_again": n.FailedAgain,
				"quarantined": n.Quarantined, "refused": n.Refused, "failed": n.Failed, "gone": n.Gone,
			} {
				gauge(ch, inHand, float64(letters), clean(n.ID), outcome)
			}
		}
	}
	store := hidden.Of(hidden.Of(c).Store())
	ask := func(ctx context.Context) (campaignsAnswer, error) { return askCampaigns(ctx, c) }
	return newScraped(ctx, store.DB(), store.Service(), "campaigns", m, ask, emit, states, stopped, blocked, inHand)
}

// sequencesSource are the messages that wait in the order of their key.
func (m *Metrics) sequencesSource(ctx context.Context, table *sequence.Table) (prometheus.Collector, error) {
	sequences := newDesc("sequences", "Keys of a partition with parked messages.", "topic")
	held := newDesc("sequences_held", "Keys of a partition whose messages are held until a person decides.", "topic")
	waiting := newDesc("sequences_waiting", "Messages that are parked in the order of their key.", "topic")
	overdue := newDesc("sequences_overdue_seconds", "How long the first parked message of a key is due and not begun; 0 if "+
		"none is. Held ones do not count.", "topic")
	emit := func(ch chan<- prometheus.Metric, now []sequence.Standing) {
		type sum struct{ sequences, held, waiting, overdue float64 }
		sums := make(map[string]sum)
		for _, s := range now {
			topic := m.labels.value("topic", s.Topic)
			n := sums[topic]
			sums[topic] = sum{n.sequences + float64(s.Sequences), n.held + float64(s.Held), n.waiting + float64(s.Messages),
				max(n.overdue, s.Overdue.Seconds())}
		}
		for topic, n := range sums {
			gauge(ch, sequences, n.sequences, topic)
			gauge(ch, held, n.held, topic)
			gauge(ch, waiting, n.waiting, topic)
			gauge(ch, overdue, n.overdue, topic)
		}
	}
	return newScraped(ctx, table.DB(), table.Service(), "sequences", m, table.Standing, emit, sequences, held, waiting,
		overdue)
}

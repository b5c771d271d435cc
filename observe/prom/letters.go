package prom

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/observe/internal/series"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// lettersAnswer is what the store says.
type lettersAnswer struct {
	totals map[letters.Status]int
	causes int
	oldest time.Time            // when the letter failed first that waits longest, of no snoozed cause; zero if none waits
	groups []letters.Group      // those with the most letters
	waits  map[string]time.Time // since when their oldest letters wait
	others int                  // letters of further causes
	newest []letters.Group      // of no snoozed cause, the newest first
}

// lettersSource are the letters in the store.
func (m *Metrics) lettersSource(store *letters.Store) prometheus.Collector {
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
	bound := func(g letters.Group) []string {
		return []string{m.labels.value("topic", g.Topic), m.labels.value("handler", g.Handler), g.Class.String(),
			m.labels.value("reason", g.Reason)}
	}
	emit := func(ch chan<- prometheus.Metric, now lettersAnswer) {
		for status, n := range now.totals {
			if status != letters.StatusErased { // nothing is left of these
				gauge(ch, byStatus, float64(n), string(status))
			}
		}
		gauge(ch, causes, float64(now.causes))
		if !now.oldest.IsZero() {
			gauge(ch, oldestOfAll, unix(now.oldest))
		}
		for _, g := range now.groups {
			labels := append([]string{clean(g.Cause)}, bound(g)...)
			gauge(ch, waiting, float64(g.Count), labels...)
			ch <- prometheus.MustNewConstMetric(arrived, prometheus.CounterValue, float64(g.Arrived), labels...)
			if at := now.waits[g.Cause]; !at.IsZero() {
				gauge(ch, oldest, unix(at), labels...)
			}
		}
		if now.others > 0 {
			gauge(ch, waiting, float64(now.others), series.Other, series.Other, series.Other, series.Other, series.Other)
		}
		shown := make(map[[4]string]bool) // several can have the same values, of which the newest counts
		for _, g := range now.newest {
			if len(shown) == maxCauses {
				break
			}
			if values := [4]string(bound(g)); !shown[values] {
				shown[values] = true
				gauge(ch, latest, unix(g.FirstFailedAt), values[:]...)
			}
		}
	}
	ask := func(ctx context.Context) (lettersAnswer, error) { return askLetters(ctx, store) }
	return newScraped(m, "letters", ask, emit, byStatus, waiting, arrived, oldest, oldestOfAll, latest, causes)
}

// askLetters asks the store. All numbers are kept with the letters: no statement counts letters.
func askLetters(ctx context.Context, store *letters.Store) (a lettersAnswer, err error) {
	if a.totals, err = hidden.Of(store).Totals(ctx); err != nil {
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
		if a.oldest = first[0].FirstFailedAt; a.oldest.IsZero() {
			a.oldest = first[0].StoredAt
		}
	}
	a.causes = len(groups)
	snoozed := func(g letters.Group) bool { return notes[g.Cause].Snoozed }
	a.newest = slices.DeleteFunc(slices.Clone(groups), snoozed)
	slices.SortFunc(a.newest, func(a, b letters.Group) int { return b.FirstFailedAt.Compare(a.FirstFailedAt) })
	// Of causes with equally many letters the oldest come first: an attacker who makes causes makes no new series.
	slices.SortStableFunc(groups, func(a, b letters.Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), a.FirstFailedAt.Compare(b.FirstFailedAt),
			cmp.Compare(a.Cause, b.Cause))
	})
	a.groups = groups[:min(len(groups), maxCauses)]
	for _, g := range groups[len(a.groups):] {
		a.others += g.Count
	}
	var causes []string
	for _, g := range a.groups {
		if !snoozed(g) {
			causes = append(causes, g.Cause)
		}
	}
	a.waits, err = hidden.Of(store).OldestWaiting(ctx, causes...)
	return a, err
}

// maxCampaigns is how many campaigns have series of their own, the newest of those that have not ended.
const maxCampaigns = 20

type campaignsAnswer struct {
	summary inside.Summary[campaigns.State]
	live    []campaigns.Campaign
}

func askCampaigns(ctx context.Context, c *campaigns.Campaigns) (a campaignsAnswer, err error) {
	if a.summary, err = hidden.Of(c).Summary(ctx); err != nil {
		return a, err
	}
	var live []campaigns.State
	for _, s := range campaigns.States {
		if !s.Ended() {
			live = append(live, s)
		}
	}
	a.live, err = c.List(ctx, campaigns.List{States: live, Limit: maxCampaigns})
	return a, err
}

// campaignsSource are the campaigns of the store's service.
func (m *Metrics) campaignsSource(c *campaigns.Campaigns) prometheus.Collector {
	states := newDesc("campaigns", "Campaigns, by their state.", "state")
	blocked := newDesc("policies_blocked_causes",
		"Causes that a standing policy leaves to a person, until one releases them.")
	stopped := newDesc("campaigns_stopped", "Campaigns that stopped themselves, because too many letters failed again, "+
		"and wait to be resumed.")
	inHand := newDesc("campaign_letters", "Letters of a campaign that has not ended, by what became of them. The newest "+
		"20 campaigns have series.", "campaign", "outcome")
	emit := func(ch chan<- prometheus.Metric, now campaignsAnswer) {
		for _, state := range campaigns.States {
			gauge(ch, states, float64(now.summary.States[state]), string(state))
		}
		gauge(ch, stopped, float64(now.summary.Stopped))
		gauge(ch, blocked, float64(now.summary.Blocked))
		for _, n := range now.live {
			for outcome, letters := range map[string]int{
				"pending": n.Pending, "not_heard": n.NotHeard, "succeeded": n.Succeeded, "failed_again": n.FailedAgain,
				"quarantined": n.Quarantined, "refused": n.Refused, "failed": n.Failed, "gone": n.Gone,
			} {
				gauge(ch, inHand, float64(letters), clean(n.ID), outcome)
			}
		}
	}
	ask := func(ctx context.Context) (campaignsAnswer, error) { return askCampaigns(ctx, c) }
	return newScraped(m, "campaigns", ask, emit, states, stopped, blocked, inHand)
}

// sequencesSource are the messages that wait in the order of their key.
func (m *Metrics) sequencesSource(table *parked.Table) prometheus.Collector {
	sequences := newDesc("sequences", "Keys of a partition with parked messages.", "topic")
	held := newDesc("sequences_held", "Keys of a partition whose messages are held until a person decides.", "topic")
	waiting := newDesc("sequences_waiting", "Messages that are parked in the order of their key.", "topic")
	overdue := newDesc("sequences_overdue_seconds", "How long the first parked message of a key is due and not begun; 0 if "+
		"none is. Held ones do not count.", "topic")
	emit := func(ch chan<- prometheus.Metric, now []parked.Standing) {
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
	return newScraped(m, "sequences", table.Standing, emit, sequences, held, waiting, overdue)
}

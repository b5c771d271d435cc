package prom

import (
	"context"
	"github.com/watermill-spillway/spillway/internal/inside"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

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
	if a.Summary, err = c.Inside().Summary(ctx); err != nil {
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
	store := c.Inside().Store().Inside()
	source, err := newSource(ctx, store.DB(), store.Service(), "campaigns/1", &m.config,
		func(ctx context.Context) (campaignsAnswer, error) {
			return askCampaigns(ctx, c)
		})
	if err != nil {
		return nil, err
	}
	return newRedriving(source), nil
}

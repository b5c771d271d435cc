package campaigns

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Plan is what a campaign would do: the answer of a dry run. Nothing was written or published.
type Plan struct {
	// Letters is the number of letters that the campaign would take.
	Letters int `json:"letters"`
	// Quarantine is how many of them would be quarantined: they failed again after Config.MaxRedrives redrives.
	Quarantine int `json:"quarantine"`
	// LeftOut are the letters that the selection chooses and that the campaign would not take.
	LeftOut []LeftOut `json:"left_out"`
	// Takes is how long the campaign would run at its rate. 0 without a rate.
	Takes time.Duration `json:"takes,omitempty"`
	// NeedsApproval reports whether a second person must approve.
	NeedsApproval bool `json:"needs_approval"`
}

// Samples is how many letters a dry run shows.
const Samples = 10

var ages = []time.Duration{time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour,
	30 * 24 * time.Hour, 0}

// Plan says what a campaign of the request would do if it started now: a dry run. It reads the whole selection, in
// windows, and ends with ctx. Request.By and Reason may be empty.
func (c *Campaigns) Plan(ctx context.Context, r Request) (Plan, error) {
	plan, _, err := inner{c}.Plan(ctx, r)
	return plan, err
}

// Plan is Plan, with what a page shows of it.
func (c inner) Plan(ctx context.Context, r Request) (Plan, inside.Details, error) {
	p, err := c.dryRun(ctx, &r)
	if err != nil {
		return Plan{}, inside.Details{}, err
	}
	p.result()
	return p.plan, p.details, nil
}

func (c *Campaigns) dryRun(ctx context.Context, r *Request) (*planning, error) {
	if err := c.usable(ctx); err != nil {
		return nil, err
	}
	r.setDefaults()
	if err := c.check(r); err != nil {
		return nil, err
	}
	if err := c.checkKeys(ctx, r); err != nil {
		return nil, err
	}
	last, err := hidden.Of(c.store).LastSeq(ctx)
	if err != nil {
		return nil, fmt.Errorf("campaigns: plan: %w", err)
	}
	p := &planning{all: c, request: r, now: time.Now(), causes: inside.CauseCounts{},
		targets: inside.TopicCounts{}, ages: make([]int, len(ages))}
	err = c.whole().pages(ctx, r, 0, last, func(found []letters.Letter, _ int64) (bool, error) {
		return p.page(ctx, found)
	})
	if err != nil {
		return nil, fmt.Errorf("campaigns: plan: %w", err)
	}
	return p, nil
}

// planning is one Plan.
type planning struct {
	all     *Campaigns
	request *Request
	now     time.Time
	plan    Plan
	details inside.Details
	out     leftOut
	causes  inside.CauseCounts
	targets inside.TopicCounts
	ages    []int
}

func (p *planning) page(ctx context.Context, found []letters.Letter) (more bool, err error) {
	taken, err := p.all.inCampaigns(ctx, found)
	if err != nil {
		return false, err
	}
	newer, err := p.all.newerOfLetters(ctx, found)
	if err != nil {
		return false, err
	}
	for _, l := range found {
		topic, why := p.all.takes(p.request, l.Status, l.Origin.Topic)
		if why == "" && newer[l.Seq] {
			topic, why = "", NewerWaits
		}
		if why != "" {
			p.out.add(why, topic, "", 1)
			continue
		}
		if campaign, is := taken[l.Seq]; is {
			p.out.add(InCampaign, "", campaign, 1)
			continue
		}
		p.letter(ctx, &l, topic)
		if p.request.Max > 0 && p.plan.Letters == p.request.Max {
			return false, nil
		}
	}
	return true, ctx.Err()
}

func (p *planning) letter(ctx context.Context, l *letters.Letter, topic string) {
	p.plan.Letters++
	if l.Redrive.Count >= p.all.config.MaxRedrives {
		p.plan.Quarantine++
	}
	p.causes.Add(&l.Letter)
	p.targets.Add(topic)
	first := l.Failure.FirstFailedAt
	if first.IsZero() {
		first = l.StoredAt
	}
	age := p.now.Sub(first)
	p.ages[slices.IndexFunc(ages, func(upTo time.Duration) bool { return upTo == 0 || age <= upTo })]++
	if len(p.details.Sample) < Samples {
		p.details.Sample = append(p.details.Sample, p.sample(ctx, l, topic, first))
	}
}

func (p *planning) sample(ctx context.Context, l *letters.Letter, topic string, first time.Time) inside.PlannedLetter {
	s := inside.PlannedLetter{
		Seq: l.Seq, ID: l.Original.UUID, Topic: topic, Handler: l.Origin.Handler, Description: logged(l.Failure.Description),
		FirstFailed: first.UTC(),
	}
	if p.request.Edit != nil {
		opened, err := p.all.store.Open(ctx, *l)
		d := refusedEdit(whyClosed(err))
		if err == nil {
			d = p.request.Edit.diff(ctx, opened.Original, p.all.config.Edits)
		}
		d.Refused = p.all.config.Privacy.Text(d.Refused)
		s.Edited = &d
	}
	return s
}

func (p *planning) result() {
	p.plan.LeftOut = p.out.sorted()
	p.details.Causes, p.details.Targets = p.causes.MostFirst(), p.targets.MostFirst(inside.MaxPlanned)
	for i, n := range p.ages {
		if n > 0 {
			p.details.Ages = append(p.details.Ages, inside.PlannedAge{UpTo: timing.Duration(ages[i]), Letters: n})
		}
	}
	if p.request.Rate > 0 {
		p.plan.Takes = time.Duration(float64(p.plan.Letters) / p.request.Rate * float64(time.Second))
	}
	p.plan.NeedsApproval = p.request.Approval || p.all.config.ApproveOver > 0 && p.plan.Letters > p.all.config.ApproveOver
}

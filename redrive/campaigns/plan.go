package campaigns

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Plan is what a campaign would do: the answer of a dry run. Nothing was written or published.
type Plan struct {
	// Letters is the number of letters that the campaign would take.
	Letters int `json:"letters"`
	// Quarantine is how many of them would be quarantined: they failed again after Config.MaxRedrives redrives.
	Quarantine int `json:"quarantine"`
	// Causes are the letters by what failed, the most first, at most 100.
	Causes []redrive.PlannedCause `json:"causes"`
	// Ages are the letters by the time since their first failure, the youngest first.
	Ages []PlanAge `json:"ages"`
	// Targets are the letters by the topic that they would go to, the most first, at most 100.
	Targets []redrive.TopicCount `json:"targets"`
	// LeftOut are the letters that the selection chooses and that the campaign would not take.
	LeftOut []LeftOut `json:"left_out"`
	// Sample are letters, at most Samples of them, with what the edit would change.
	Sample []PlanLetter `json:"sample"`
	// Takes is how long the campaign would run at its rate. 0 without a rate.
	Takes time.Duration `json:"takes,omitempty"`
	// NeedsApproval reports whether a second person must approve.
	NeedsApproval bool `json:"needs_approval"`
}

// PlanAge counts the letters whose first failure is at most UpTo ago, and longer ago than the one before. UpTo 0 is any
// time.
type PlanAge struct {
	UpTo    time.Duration `json:"up_to"`
	Letters int           `json:"letters"`
}

// PlanLetter is a letter of the sample.
type PlanLetter struct {
	Seq         int64     `json:"seq"`
	ID          string    `json:"id"`
	Topic       string    `json:"topic"`
	Handler     string    `json:"handler"`
	Description string    `json:"description"`
	FirstFailed time.Time `json:"first_failed"`
	// Edited is what the edit does to the letter. It is nil without an edit.
	Edited *Diff `json:"edited,omitempty"`
}

// Samples is how many letters the sample of a Plan has.
const Samples = 10

var ages = []time.Duration{time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour,
	30 * 24 * time.Hour, 0}

// Plan says what a campaign of the request would do if it started now: a dry run. It reads the whole selection, in
// windows, and ends with ctx. Request.By and Reason may be empty.
func (c *Campaigns) Plan(ctx context.Context, r Request) (Plan, error) {
	if err := c.usable(ctx); err != nil {
		return Plan{}, err
	}
	r.setDefaults()
	if err := c.check(&r); err != nil {
		return Plan{}, err
	}
	if err := c.checkKeys(ctx, &r); err != nil {
		return Plan{}, err
	}
	last, err := c.store.Inside().LastSeq(ctx)
	if err != nil {
		return Plan{}, fmt.Errorf("campaigns: plan: %w", err)
	}
	p := planning{Campaigns: c, request: &r, now: time.Now(), causes: map[redrive.PlannedCause]*counted{}, targets: map[string]int{},
		ages: make([]int, len(ages))}
	err = c.whole().pages(ctx, &r, 0, last, func(found []letters.Letter, _ int64) (bool, error) {
		return p.page(ctx, found)
	})
	if err != nil {
		return Plan{}, fmt.Errorf("campaigns: plan: %w", err)
	}
	return p.result(), nil
}

// planning is one Plan.
type planning struct {
	*Campaigns
	request *Request
	now     time.Time
	plan    Plan
	out     leftOut
	causes  map[redrive.PlannedCause]*counted
	targets map[string]int
	ages    []int
}

type counted struct {
	letters     int
	description string // of the last one
}

func (p *planning) page(ctx context.Context, found []letters.Letter) (more bool, err error) {
	taken, err := p.inCampaigns(ctx, found)
	if err != nil {
		return false, err
	}
	for _, l := range found {
		topic, why := p.takes(p.request, l.Status, l.Origin.Topic)
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

// maxDistinct bounds what is counted apart: topics and causes come with messages, and may be many.
const maxDistinct = 10_000

func (p *planning) letter(ctx context.Context, l *letters.Letter, topic string) {
	p.plan.Letters++
	if l.Redrive.Count >= p.config.MaxRedrives {
		p.plan.Quarantine++
	}
	cause := redrive.PlannedCause{Topic: logged(l.Origin.Topic), Handler: logged(l.Origin.Handler), Class: l.Failure.Class,
		Reason: logged(l.Failure.Reason), Type: logged(l.Failure.Type)}
	if p.causes[cause] == nil && len(p.causes) < maxDistinct {
		p.causes[cause] = new(counted)
	}
	if n := p.causes[cause]; n != nil {
		n.letters++
		n.description = logged(l.Failure.Description)
	}
	if topic = logged(topic); p.targets[topic] > 0 || len(p.targets) < maxDistinct {
		p.targets[topic]++
	}
	first := l.Failure.FirstFailedAt
	if first.IsZero() {
		first = l.StoredAt
	}
	age := p.now.Sub(first)
	p.ages[slices.IndexFunc(ages, func(upTo time.Duration) bool { return upTo == 0 || age <= upTo })]++
	if len(p.plan.Sample) < Samples {
		p.plan.Sample = append(p.plan.Sample, p.sample(ctx, l, topic, first))
	}
}

func (p *planning) sample(ctx context.Context, l *letters.Letter, topic string, first time.Time) PlanLetter {
	s := PlanLetter{
		Seq: l.Seq, ID: l.Original.UUID, Topic: topic, Handler: l.Origin.Handler, Description: logged(l.Failure.Description),
		FirstFailed: first.UTC(),
	}
	if p.request.Edit != nil {
		opened, err := p.store.Open(ctx, *l)
		d := Diff{Refused: whyClosed(err)}
		if err == nil {
			d = p.request.Edit.diff(ctx, opened.Original, p.config.Edits)
		}
		d.Refused = p.config.Privacy.Text(d.Refused)
		s.Edited = &d
	}
	return s
}

func (p *planning) result() Plan {
	p.plan.LeftOut = p.out.sorted()
	for cause, n := range p.causes {
		cause.Description, cause.Letters = n.description, n.letters
		p.plan.Causes = append(p.plan.Causes, cause)
	}
	slices.SortFunc(p.plan.Causes, func(a, b redrive.PlannedCause) int {
		return cmp.Or(cmp.Compare(b.Letters, a.Letters), cmp.Compare(a.Handler, b.Handler), cmp.Compare(a.Reason, b.Reason),
			cmp.Compare(a.Type, b.Type))
	})
	for _, topic := range slices.Sorted(maps.Keys(p.targets)) {
		p.plan.Targets = append(p.plan.Targets, redrive.TopicCount{Topic: topic, Letters: p.targets[topic]})
	}
	slices.SortStableFunc(p.plan.Targets, func(a, b redrive.TopicCount) int { return cmp.Compare(b.Letters, a.Letters) })
	p.plan.Causes, p.plan.Targets = p.plan.Causes[:min(len(p.plan.Causes), 100)],
		p.plan.Targets[:min(len(p.plan.Targets), 100)]
	for i, n := range p.ages {
		if n > 0 {
			p.plan.Ages = append(p.plan.Ages, PlanAge{ages[i], n})
		}
	}
	if p.request.Rate > 0 {
		p.plan.Takes = time.Duration(float64(p.plan.Letters) / p.request.Rate * float64(time.Second))
	}
	p.plan.NeedsApproval = p.request.Approval || p.config.ApproveOver > 0 && p.plan.Letters > p.config.ApproveOver
	return p.plan
}

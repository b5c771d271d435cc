package notify

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
	"github.com/watermill-spillway/spillway/observe/notify/internal/ledger"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// poll looks at the states that last. A state that is over is not reported any more.
func (r *running) poll(ctx context.Context) error {
	health := r.n.channel.Health()
	for _, s := range health.Handlers {
		if s.State != circuit.Closed {
			if err := r.lasts(ctx, BreakerOpen, s.Handler+"\n"+s.Scope, s.Since,
				about{Handler: s.Handler, Subject: s.Scope, Reason: s.Reason,
					Description: cmp.Or(s.Cause, s.Actor)}); err != nil {
				return err
			}
		}
	}
	for _, s := range health.Stores {
		if err := r.lasts(ctx, StoreUnavailable, s.Name, s.Since,
			about{Subject: s.Name, Description: fmt.Sprintf("%d messages are held for it", s.Waiting)}); err != nil {
			return err
		}
	}
	mine, err := r.mine(ctx)
	if err != nil || !mine {
		return err
	}
	if err := r.pollLetters(ctx); err != nil {
		return err
	}
	if err := r.pollSequences(ctx); err != nil {
		return err
	}
	return r.pollCampaigns(ctx)
}

// mine reports whether this instance is the one that reads letters, sequences and campaigns this time.
func (r *running) mine(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, r.n.pace.answer)
	defer cancel()
	// an instance whose clock ticks a little early is in time
	return r.n.shared.Turn(ctx, "poll", r.n.pace.poll-r.n.pace.poll/10)
}

// lasts reports a state.
func (r *running) lasts(ctx context.Context, kind Kind, subject string, since time.Time, a about) error {
	now := time.Now()
	if since.IsZero() || since.After(now) {
		since = now
	}
	return r.report(ctx, r.n.shared,
		ledger.Report{Key: ledger.Key{Kind: string(kind), Subject: subject}, First: since, Last: now,
			About: r.n.text(a)})
}

// reportUnavailable has this process say that the database is unavailable: others cannot be asked.
func (r *running) reportUnavailable(ctx context.Context, err error) {
	a := about{Subject: "the database of the notices", Description: err.Error()}
	// in memory
	_ = r.report(ctx, r.n.local,
		ledger.Report{Key: ledger.Key{Kind: string(StoreUnavailable), Subject: "notices"}, First: r.unavailable, Last: time.Now(),
			About: r.n.text(a)})
}

// maxGroups is the number of causes that are looked at, those with the most letters.
const maxGroups = 100

func (r *running) pollLetters(ctx context.Context) error {
	store := r.n.channel.Letters()
	if store == nil {
		return nil
	}
	asked, cancel := context.WithTimeout(ctx, r.n.pace.answer)
	defer cancel()
	notes, err := hidden.Of(store).TendNotes(asked)
	if err != nil {
		return err
	}
	for cause, note := range notes {
		if !note.Grown() {
			continue
		}
		groups, err := store.Groups(asked, letters.Filter{Causes: []string{cause}, Statuses: letters.Statuses(), Limit: 1})
		if err != nil {
			return err
		}
		for _, g := range groups {
			a := aboutGroup(g)
			a.Description = cmp.Or(note.Words(), a.Description)
			if err := r.lasts(ctx, CauseGrew, cause, note.WokenAt, a); err != nil {
				return err
			}
		}
	}
	if most := r.n.config.Threshold; most > 0 {
		groups, err := store.Groups(asked, letters.Filter{Limit: maxGroups})
		if err != nil {
			return err
		}
		for _, g := range groups {
			if g.Count < most {
				break
			}
			if notes[g.Cause].Snoozed {
				continue
			}
			if err := r.lasts(ctx, Threshold, g.Cause, g.FirstFailedAt, aboutGroup(g)); err != nil {
				return err
			}
		}
	}
	if most := r.n.config.OldestAge; most > 0 {
		heads, err := hidden.Of(store).OldestAwake(asked, notes)
		if err != nil || len(heads) == 0 {
			return err
		}
		h := heads[0]
		since := h.FirstFailedAt
		if since.IsZero() {
			since = h.StoredAt
		}
		if time.Since(since) >= most {
			return r.lasts(ctx, OldestLetter, "", since,
				about{Cause: h.Cause, Topic: h.Topic, Handler: h.Handler, Class: h.Class.String(), Reason: h.Reason,
					Description: h.Description})
		}
	}
	return nil
}

func aboutGroup(g letters.Group) about {
	return about{Cause: g.Cause, Topic: g.Topic, Handler: g.Handler, Class: g.Class.String(), Reason: g.Reason,
		Description: g.Description, Waiting: int64(g.Count)}
}

// awake leaves out the letters of causes that are snoozed, and of those that woke, of which CauseGrew is told. If the
// store does not answer, a notice too many is better than none.
func (r *running) awake(ctx context.Context, reports []*ledger.Report) []*ledger.Report {
	var causes []string
	for _, one := range reports {
		if one.Kind == string(NewCause) {
			causes = append(causes, one.Subject)
		}
	}
	store := r.n.channel.Letters()
	if store == nil || len(causes) == 0 {
		return reports
	}
	ctx, cancel := context.WithTimeout(ctx, r.n.pace.answer)
	defer cancel()
	notes, err := hidden.Of(store).Notes(ctx, causes...)
	if err != nil {
		return reports
	}
	return slices.DeleteFunc(reports, func(one *ledger.Report) bool {
		note := notes[one.Subject]
		return one.Kind == string(NewCause) && (note.Snoozed || note.Grown())
	})
}

func (r *running) pollCampaigns(ctx context.Context) error {
	asked, cancel := context.WithTimeout(ctx, r.n.pace.answer)
	defer cancel()
	for _, all := range r.n.campaigns {
		paused, err := all.List(asked, campaigns.List{States: []campaigns.State{campaigns.Paused}})
		if err != nil {
			return err
		}
		for _, c := range paused {
			if err := r.pollCampaign(ctx, asked, all, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// pollCampaign reports a paused campaign, if it stopped itself.
func (r *running) pollCampaign(ctx, asked context.Context, all *campaigns.Campaigns, c campaigns.Campaign) error {
	stopped, itself, err := stoppedItself(asked, all, c.ID)
	if err != nil || !itself {
		return err
	}
	why := c.Why
	if !c.ResumeAt.IsZero() {
		why += "; it resumes by itself at " + c.ResumeAt.UTC().Format(time.RFC3339)
	}
	return r.lasts(ctx, CampaignStopped, c.ID, stopped, about{Subject: c.ID, Description: why})
}

// stoppedItself returns when a campaign paused last, and whether a worker did that.
func stoppedItself(ctx context.Context, all *campaigns.Campaigns, id string) (at time.Time, itself bool, err error) {
	for after := int64(0); ; {
		events, err := hidden.Of(all).History(ctx, id, after)
		if err != nil || len(events) == 0 {
			return at, itself, err
		}
		for _, e := range events {
			if after = e.Seq; e.Kind == inside.CampaignPaused {
				at, itself = e.At, e.By == campaigns.ByItself
			}
		}
	}
}

// maxHeld is the number of held keys that are looked at, those that wait longest.
const maxHeld = 100

// pollSequences looks at the keys whose messages are parked. Those that are late have one notice for each partition: it
// is about the owner, and not about them.
func (r *running) pollSequences(ctx context.Context) error {
	if r.n.parked == nil {
		return nil
	}
	asked, cancel := context.WithTimeout(ctx, r.n.pace.answer)
	defer cancel()
	all, err := r.n.parked.Standing(asked)
	if err != nil {
		return err
	}
	held := 0
	for _, s := range all {
		if held += s.Held; !s.IsLate() {
			continue
		}
		if err := r.lasts(ctx, SequenceLate, fmt.Sprintf("%s\n%s\n%d", s.Group, s.Topic, s.Partition),
			time.Now().Add(-s.Overdue), aboutLate(s)); err != nil {
			return err
		}
	}
	if held == 0 {
		return nil
	}
	keys, err := r.n.parked.Held(asked, maxHeld)
	if err != nil {
		return err
	}
	for _, p := range keys {
		if err := r.lasts(ctx, SequenceHeld, fmt.Sprint(p.Seq), time.Time{},
			aboutHeld(r.n.parked.Service(), p)); err != nil {
			return err
		}
	}
	return nil
}

func aboutLate(s parked.Standing) about {
	return about{Topic: s.Topic, Reason: fmt.Sprintf("partition %d", s.Partition),
		Description: fmt.Sprintf("%d messages of %d keys are parked for the group %s", s.Messages, s.Sequences,
			s.Group)}
}

func aboutHeld(service string, p parked.Parked) about {
	a := about{Topic: p.Topic, Handler: strings.TrimPrefix(p.Consumer, service+"/"),
		Description: fmt.Sprintf("message %s, partition %d, offset %d; %d parked", p.First, p.Partition, p.Position,
			p.Messages)}
	if p.Key != nil {
		a.Subject = *p.Key
	}
	return a
}

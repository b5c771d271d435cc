package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/text/masked"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Redrivable are the states of letters that a redrive takes. Discarded letters are restored first.
var Redrivable = slices.DeleteFunc(letters.Statuses(),
	func(s letters.Status) bool { return s == letters.StatusDiscarded || s == letters.StatusErased })

// DryRun is what a campaign would do, and what a page shows of it.
type DryRun struct {
	campaigns.Plan
	inside.Details
}

// Plan says what a campaign would do. It reads at most a number of letters, if there is one; part says that there may
// be more.
func (d *Desk) Plan(ctx context.Context, who Person, r campaigns.Request,
	most int) (plan DryRun, part bool, err error) {
	if err := who.may(Act); err != nil {
		return plan, false, err
	}
	if part = most > 0 && (r.Max == 0 || r.Max > most); part {
		r.Max = most
	}
	plan.Plan, plan.Details, err = d.Campaigns.Inside().Plan(ctx, r)
	return plan, part && plan.Letters == most, err
}

// Start starts a campaign in the name of a person.
func (d *Desk) Start(ctx context.Context, who Person, r campaigns.Request) (campaigns.Campaign, error) {
	if err := who.allowed(Act); err != nil {
		return campaigns.Campaign{}, err
	}
	r.Act = campaigns.Act{By: who.Name, Reason: who.Reason}
	if none, err := d.some(ctx, r); err != nil {
		return none, err
	}
	return d.Campaigns.Start(ctx, r)
}

// some returns an error if no letter can be taken any more, as for a page that was open for long: a campaign without
// letters would stay in the list. With it comes no campaign, but which letters are left out.
func (d *Desk) some(ctx context.Context, r campaigns.Request) (none campaigns.Campaign, err error) {
	if r.ID != "" {
		if _, err := d.Campaigns.Get(ctx, r.ID); err == nil || !errors.Is(err, campaigns.ErrNotFound) {
			return none, err // it is that campaign
		}
	}
	if r.Max = 1; len(r.Seqs) > 0 {
		plan, err := d.Campaigns.Plan(ctx, r)
		if none.LeftOut = plan.LeftOut; err == nil && plan.Letters == 0 {
			err = fmt.Errorf("%w: all of the selection is left out", campaigns.ErrNoLetters)
		}
		return none, err
	}
	r.Filter.Limit = 1
	found, err := d.Store.Heads(ctx, r.Filter)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: the selection is empty", campaigns.ErrNoLetters)
	}
	return none, err
}

// Steering is something that a person can do with a campaign.
type Steering struct {
	Name, Label, Hint string
	Danger            bool
	Rated             bool // it takes a rate

	right Right
	from  func(campaigns.State) bool
	do    func(*campaigns.Campaigns, context.Context, string, campaigns.Act) (campaigns.Campaign, error)
}

// Steerings are what persons can do with campaigns.
var Steerings = []Steering{
	{
		Name: "approve", Label: "Approve", Hint: "The campaign begins, as you agree.", right: Approve,
		from: func(s campaigns.State) bool { return s == campaigns.Approval }, do: (*campaigns.Campaigns).Approve,
	},
	{
		Name: "pause", Label: "Pause", Hint: "Workers finish the letters that they have in hand.", right: Act,
		from: func(s campaigns.State) bool {
			return s == campaigns.Running || s == campaigns.Canary || s == campaigns.Scheduled
		}, do: (*campaigns.Campaigns).Pause,
	},
	{
		Name: "resume", Label: "Resume", right: Act,
		Hint: "If the campaign had stopped itself, only what comes back from now on counts.",
		from: func(s campaigns.State) bool { return s == campaigns.Paused }, do: (*campaigns.Campaigns).Resume,
	},
	{
		Name: "rate", Label: "Set the rate", Hint: "From the next letters on. 0 is no limit.", Rated: true, right: Act,
		from: func(s campaigns.State) bool { return !s.Ended() },
	},
	{
		Name: "cancel", Label: "Cancel for good", Danger: true, right: Act,
		Hint: "Letters that are not redriven wait as before. Another campaign can take them.",
		from: func(s campaigns.State) bool { return !s.Ended() }, do: (*campaigns.Campaigns).Cancel,
	},
}

// Least is the least right that it needs.
func (s Steering) Least() Right { return s.right }

// SteeringOf is the steering of a name.
func SteeringOf(name string) Steering {
	return Steerings[slices.IndexFunc(Steerings, func(s Steering) bool { return s.Name == name })]
}

// Can returns what a person can do with a campaign in the state that it has.
func (p Person) Can(c campaigns.Campaign) (all []Steering) {
	for _, s := range Steerings {
		if p.Right >= s.right && s.from(c.State) && !(s.right == Approve && p.Began(c)) {
			all = append(all, s)
		}
	}
	return all
}

// Began reports whether a person started a campaign, and so cannot approve it.
func (p Person) Began(c campaigns.Campaign) bool {
	return strings.EqualFold(strings.TrimSpace(c.Request.By), strings.TrimSpace(p.Name))
}

// Steer does something with a campaign. Only what is Rated reads the rate.
func (d *Desk) Steer(ctx context.Context, who Person, id string, s Steering,
	rate float64) (campaigns.Campaign, error) {
	if err := who.allowed(s.right); err != nil {
		return campaigns.Campaign{}, err
	}
	act := campaigns.Act{By: who.Name, Reason: who.Reason, Key: who.Key}
	if !s.Rated {
		return s.do(d.Campaigns, ctx, id, act)
	}
	if err := CheckRate("rate", rate); err != nil {
		return campaigns.Campaign{}, err
	}
	return d.Campaigns.SetRate(ctx, id, rate, act)
}

// Campaign is a campaign as it may be shown: its filter and its edit have values of messages.
func (d *Desk) Campaign(c campaigns.Campaign) campaigns.Campaign {
	c.Request = masked.Request(d.Masks, c.Request)
	return c
}

// CameBack counts what came back dead from a campaign, by cause, and says by which filter. It has a Seq behind all that
// were there when the campaign began. A count that is not done in time is slow, and no error.
func (d *Desk) CameBack(ctx context.Context, c campaigns.Campaign,
	patience time.Duration) (groups []letters.Group, slow bool, err error) {
	f := CameBackFrom(c)
	f.After, f.Limit = c.Request.Filter.MaxSeq, 20
	if n := len(c.Request.Seqs); n > 0 {
		f.After = slices.Max(c.Request.Seqs)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	groups, err = d.Store.Groups(ctx, f)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, true, nil
	}
	return groups, false, err
}

// CameBackFrom chooses the letters that came back from a campaign, and wait.
func CameBackFrom(c campaigns.Campaign) letters.Filter {
	return letters.Filter{RedriveIDs: []string{c.ID}, Statuses: []letters.Status{letters.StatusWaiting}}
}

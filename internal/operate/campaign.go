package operate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
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
	plan.Plan, plan.Details, err = hidden.Of(d.Campaigns).Plan(ctx, r)
	return plan, part && plan.Letters == most, err
}

// some returns an error if no letter can be taken any more, as for a page that was open for long: a campaign without
// letters would stay in the list. With it comes no campaign, but which letters are left out.
func (d *Desk) some(ctx context.Context, r campaigns.Request) (none campaigns.Campaign, err error) {
	begun := func() bool {
		_, err := d.Campaigns.Get(ctx, r.ID)
		return r.ID != "" && !errors.Is(err, campaigns.ErrNotFound)
	}
	if begun() {
		return none, nil // it is that campaign
	}
	found := 0
	if r.Max = 1; len(r.Seqs) > 0 {
		var plan campaigns.Plan
		plan, err = d.Campaigns.Plan(ctx, r)
		found, none.LeftOut = plan.Letters, plan.LeftOut
	} else {
		r.Filter.Limit = 1
		var heads []letters.Head
		heads, err = d.Store.Heads(ctx, r.Filter)
		found = len(heads)
	}
	if err != nil || found > 0 || begun() { // the other of two may have been first, and has them
		return campaigns.Campaign{}, err
	}
	return none, fmt.Errorf("%w: all of the selection is left out, or is not there any more", campaigns.ErrNoLetters)
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
	c.Request = maskedRequest(d.Masks, c.Request)
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

// Starting is how long the start of a campaign may take. It does not end with the request: a worker would have to go
// on.
const Starting = 25 * time.Second

// Beginning is a campaign that a person may ask for twice: the ID of its request says which one it is.
type Beginning struct {
	campaigns.Request
	// Seen is the number of letters that the person saw, or nil. If more match, nothing is started.
	Seen *int
	// Counting is how long the letters may be counted.
	Counting time.Duration
}

// Begin starts a campaign in the name of a person, once. With campaigns.ErrNoLetters and inside.ErrKeyReused it returns
// the campaign that has the ID. Late is why the selection of a campaign broke off that has begun: a worker goes on.
func (d *Desk) Begin(ctx context.Context, who Person, b Beginning) (c campaigns.Campaign, late, err error) {
	if err := who.allowed(Act); err != nil {
		return c, nil, err
	}
	if _, err := d.Campaigns.Get(ctx, b.ID); errors.Is(err, campaigns.ErrNotFound) {
		if err := d.noMore(ctx, Selection{Seqs: b.Seqs, Filter: b.Filter}, b.Seen, b.Max, b.Counting); err != nil {
			return c, nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Starting)
	defer cancel()
	r := b.Request
	r.Act = campaigns.Act{By: who.Name, Reason: who.Reason}
	if c, err = d.some(ctx, r); err == nil {
		c, err = d.Campaigns.Start(ctx, r)
	}
	switch none := errors.Is(err, campaigns.ErrNoLetters); {
	case c.ID == "":
		return c, nil, err
	case (err == nil || none) && !sameRequest(&c.Request, &b.Request, who):
		return c, nil, fmt.Errorf("%w: campaign %s", inside.ErrKeyReused, c.ID)
	case none:
		return c, nil, err
	}
	return c, err, nil
}

// Changed is the error of a letter that is not as the person saw it.
type Changed struct{ Letter letters.Letter }

func (c *Changed) Error() string {
	return "the letter has changed: it is " + StatusWords(c.Letter.Status)
}

// BeginEdited is Begin for one letter, of the version that the person saw.
func (d *Desk) BeginEdited(ctx context.Context, who Person, l letters.Letter, version string,
	r campaigns.Request) (c campaigns.Campaign, late, err error) {
	if err := who.allowed(Act); err != nil {
		return c, nil, err
	}
	r.Seqs, r.Filter = []int64{l.Seq}, letters.Filter{Statuses: []letters.Status{l.Status}}
	switch before, err := d.Campaigns.Get(ctx, r.ID); {
	case err == nil: // the letter may have changed by that
		r.Filter = before.Request.Filter
	case version != VersionOf(l):
		return c, nil, &Changed{l}
	}
	return d.Begin(ctx, who, Beginning{Request: r})
}

// sameRequest reports whether a person asks for the campaign that has the ID. What has a default is compared if the
// person gave it. A time to begin counts from now, and is not compared.
func sameRequest(is, asked *campaigns.Request, who Person) bool {
	return is.By == who.Name && is.Reason == who.Reason && is.Rate == asked.Rate && is.Max == asked.Max &&
		is.Canary == asked.Canary && is.To == asked.To && is.FirstStage == asked.FirstStage &&
		is.HandleAgain == asked.HandleAgain && is.ResumeAfter == asked.ResumeAfter &&
		given(is.CanaryWait, asked.CanaryWait) && given(is.StopAt, asked.StopAt) &&
		given(is.StopAfter, asked.StopAfter) && given(is.Concurrency, asked.Concurrency) &&
		given(is.Approval, asked.Approval) && sameJSON(is.Edit, asked.Edit) && sameJSON(is.Filter, asked.Filter) &&
		slices.Equal(is.Seqs, slices.Compact(slices.Sorted(slices.Values(asked.Seqs))))
}

// given reports whether a value is what was asked for, if it was.
func given[T comparable](is, asked T) bool {
	var none T
	return asked == none || is == asked
}

func sameJSON(a, b any) bool {
	one, errA := json.Marshal(a)
	other, errB := json.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(one, other)
}

// Policies returns the standing policies of the service, with reasons that are masked.
func (d *Desk) Policies(ctx context.Context) (inside.Policies, error) {
	all, err := hidden.Of(d.Campaigns).Policies(ctx)
	stops := []*inside.Stop{all.Frozen}
	for i := range all.Policies {
		p := &all.Policies[i]
		p.Rule, stops = d.Masks.Text(p.Rule), append(stops, p.Frozen)
		for j := range p.Blocked {
			stops = append(stops, &p.Blocked[j])
		}
	}
	for _, stop := range stops {
		if stop != nil {
			stop.Reason = d.Masks.Text(stop.Reason)
		}
	}
	if err == nil {
		err = d.noteStops(ctx, all.Policies)
	}
	return all, err
}

// FreezePolicies freezes or thaws a policy, or all without a name. It reports false if it was so before.
func (d *Desk) FreezePolicies(ctx context.Context, who Person, name string, frozen bool) (changed bool, err error) {
	if err := who.allowed(Act); err != nil {
		return false, err
	}
	act, of := who.once(policyBy), "all policies"
	if name != "" {
		of = "the policy " + name
	}
	if act.Detail = "thawed: " + of; frozen {
		act.Detail = "frozen: " + of
	}
	if done, err := d.did(ctx, act); done || err != nil {
		return done, err
	}
	return hidden.Of(d.Campaigns).FreezePolicies(ctx, name, frozen, who.Name, who.Reason, act.RedriveID)
}

// ReleaseCause lets a policy take letters of a cause again, which begins as given. It returns the cause.
func (d *Desk) ReleaseCause(ctx context.Context, who Person, name, cause string) (released string, err error) {
	if err := who.allowed(Act); err != nil {
		return "", err
	}
	act, said := who.once(policyBy), "released: the policy "+name+", cause "
	done, err := d.before(ctx, act, func(e letters.Event) bool {
		return cause != "" && strings.HasPrefix(e.Detail, said+cause)
	})
	if done != nil {
		return strings.TrimPrefix(done.Detail, said), nil
	}
	if err != nil {
		return "", err
	}
	all, err := d.Policies(ctx)
	if err != nil {
		return "", err
	}
	var found []string
	for _, p := range all.Policies {
		for _, stop := range p.Blocked {
			if p.Name == name && cause != "" && strings.HasPrefix(stop.Cause, cause) {
				found = append(found, stop.Cause)
			}
		}
	}
	switch len(found) {
	case 0:
		return "", inside.ErrNoPolicy
	case 1:
		_, err = hidden.Of(d.Campaigns).ReleaseCause(ctx, name, found[0], who.Name, who.Reason, act.RedriveID)
		return found[0], err
	}
	return "", wrong("cause", "is the beginning of several: give more of it")
}

package operate

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// What a program may see, as it may see it. A page masks each value where it shows it, and a program gets them masked.

func (d *Desk) mask(texts ...*string) {
	for _, text := range texts {
		*text = d.Masks.Text(*text)
	}
}

// Cause is a cause as it may be shown.
func (d *Desk) Cause(g letters.Group) CauseData {
	v := DataOfCause(g)
	d.mask(&v.DeadLetterTopic, &v.Topic, &v.Handler, &v.Reason, &v.Type, &v.Description)
	return v
}

// Head is a letter without its content as it may be shown.
func (d *Desk) Head(h letters.Head) LetterData {
	v := DataOfHead(h)
	d.mask(&v.ID, &v.DeadLetterTopic, &v.Topic, &v.Handler, &v.Reason, &v.Type, &v.Description, &v.MarkedReason)
	return v
}

// Shown is a campaign as a person may see it. Filter and edit have values of messages.
func (d *Desk) Shown(who Person, c campaigns.Campaign) CampaignData {
	c = d.Campaign(c)
	f := &c.Request.Filter
	if who.Right < Look {
		c.Request.Edit, f.Metadata, f.Description = nil, nil, ""
	}
	if who.Right < Look || who.Right < Act && d.Masks != privacy.None() {
		f.Payload = ""
	}
	for _, list := range filterLists(f) {
		*list = slices.Clone(*list)
		for i := range *list {
			d.mask(&(*list)[i])
		}
	}
	c.LeftOut = slices.Clone(c.LeftOut)
	for i := range c.LeftOut {
		d.mask(&c.LeftOut[i].Topic)
	}
	d.mask(&c.Why, &c.Request.Reason)
	return DataOfCampaign(c)
}

// LeftBehind are the letters that a campaign left behind, as they may be shown.
func (d *Desk) LeftBehind(ctx context.Context, c campaigns.Campaign) ([]inside.Behind, error) {
	behind, err := hidden.Of(d.Campaigns).LeftBehind(ctx, c.ID)
	for i := range behind {
		d.mask(&behind[i].Why)
	}
	return behind, err
}

// CampaignOf is a campaign with its record as a person may see it.
func (d *Desk) CampaignOf(ctx context.Context, who Person, c campaigns.Campaign) (v CampaignRecord, err error) {
	v.CampaignData = d.Shown(who, c)
	if v.Behind, err = d.LeftBehind(ctx, c); err != nil {
		return v, err
	}
	if v.Notes, err = d.NotesOf(ctx, c); err != nil {
		return v, err
	}
	events, err := hidden.Of(d.Campaigns).History(ctx, c.ID, 0)
	v.Events = listed(events)
	for i := range v.Events {
		d.mask(&v.Events[i].Reason, &v.Events[i].Details)
	}
	return v, err
}

// PlanOf is what a campaign would do, as it may be shown.
func (d *Desk) PlanOf(p DryRun, part bool) PlanData {
	p.LeftOut, p.Causes, p.Ages = listed(p.LeftOut), listed(p.Causes), listed(p.Ages)
	p.Targets, p.Sample = listed(p.Targets), listed(p.Sample)
	for i := range p.LeftOut {
		d.mask(&p.LeftOut[i].Topic)
	}
	for i := range p.Causes {
		c := &p.Causes[i]
		d.mask(&c.Topic, &c.Handler, &c.Reason, &c.Type, &c.Description)
	}
	for i := range p.Targets {
		d.mask(&p.Targets[i].Topic)
	}
	for i := range p.Sample {
		one := &p.Sample[i]
		d.mask(&one.ID, &one.Topic, &one.Handler, &one.Description)
		if one.Edited = one.Edited.Masked(d.Masks); d.Codec != nil && one.Edited != nil && !utf8.Valid(one.Edited.Before) {
			one.Edited.Before, one.Edited.After = nil, nil // which values are masked shows only in the decoded text
			one.Edited.Withheld = "the payload is no text"
		}
	}
	return DataOfPlan(p, part)
}

// listed is a copy of a list, and never nil: JSON has [] then, and no null.
func listed[T any](all []T) []T { return append([]T{}, all...) }

// Parked is a key whose messages wait, as a person may see it: the key is a value of a message.
func (d *Desk) Parked(who Person, p parked.Parked) parked.Parked {
	d.mask(&p.First, &p.Why, &p.Topic, &p.Consumer, &p.Group)
	switch {
	case p.Key == nil:
	case who.Right < Look:
		p.Key = nil
	default:
		key := d.Masks.Text(*p.Key)
		p.Key = &key
	}
	return p
}

// SequenceOf is a key with messages that wait, as a person may see them.
func (d *Desk) SequenceOf(who Person, first parked.Parked, all []parked.Message) SequenceData {
	v := SequenceData{Parked: d.Parked(who, first), Waiting: []ParkedData{}}
	for _, m := range all {
		v.Waiting = append(v.Waiting, d.ParkedMessage(m))
	}
	return v
}

// ParkedMessage is a message that waits, as it may be shown, with its failure.
func (d *Desk) ParkedMessage(m parked.Message) ParkedData {
	head := message.NewMessage(m.ID, nil)
	head.Metadata = m.Metadata
	var failure poison.Failure
	if inside.Poison.IsLetter(head) { // RabbitMQ's x-death says nothing of a live message
		failure = poison.Read(head).Failure
	}
	d.mask(&m.ID, &m.Why, &failure.Description)
	v := ParkedData{Message: m, Description: failure.Description, Attempts: failure.Attempts}
	if failure.Attempts > 0 {
		v.Class = failure.Class.String()
		v.FirstFailedAt, v.LastFailedAt = moment(failure.FirstFailedAt), moment(failure.LastFailedAt)
	}
	return v
}

// StatusWords is a status for people.
func StatusWords(s letters.Status) string { return spaced(string(s)) }

// EventWords is a kind of event for people.
func EventWords(k letters.EventKind) string {
	switch k {
	case letters.EventWaiting:
		return "restored"
	case letters.EventResealed:
		return "sealed again"
	case letters.EventShown:
		return "shown without masks"
	case letters.EventErasure:
		return "erasure of a person's data"
	case letters.EventSequence:
		return "decision about a key in order"
	case letters.EventPolicy:
		return "standing policy"
	case letters.EventFreeze:
		return "freeze of a handler"
	case letters.EventCause:
		return "work on a cause"
	}
	return spaced(string(k))
}

func spaced(name string) string { return strings.ReplaceAll(name, "_", " ") }

// StateWords is the state of a campaign for people.
func StateWords(s campaigns.State) string {
	switch s {
	case campaigns.Selecting:
		return "choosing letters"
	case campaigns.Approval:
		return "waits for approval"
	case campaigns.Canary:
		return "watching its canary"
	}
	return string(s)
}

// Standing says in a sentence what a campaign does in its state.
func Standing(s campaigns.State) string {
	switch s {
	case campaigns.Selecting:
		return "The letters are being written down. Nothing is published yet."
	case campaigns.Approval:
		return "A second person must approve it. Nothing is published yet."
	case campaigns.Scheduled:
		return "It waits for its time."
	case campaigns.Running:
		return "Workers of the service publish the letters. If nothing moves, no instance runs a worker."
	case campaigns.Canary:
		return "The first letters are published. It waits for what becomes of them."
	case campaigns.Paused:
		return "It publishes nothing until it is resumed."
	case campaigns.Cancelled:
		return "It was given up. Letters that were not redriven wait as before."
	case campaigns.Finished:
		return "It is through with all letters."
	}
	return ""
}

// Outcomes are the counts of a campaign that are not 0, with those that a person always asks for.
func Outcomes(n campaigns.Campaign) (some []OutcomeData) {
	for _, one := range []OutcomeData{
		{"redriven", "published to their topic", n.Redriven, false},
		{"succeeded", "redriven, and handled", n.Succeeded, false},
		{"came back", "redriven, and dead again", n.FailedAgain, n.FailedAgain > 0},
		{"not heard of", "redriven. Where successes are not recorded, most likely handled", n.NotHeard, false},
		{"quarantined", "failed again too often; a person must look", n.Quarantined, true},
		{"refused", "not allowed, or the edit does not fit; they wait as before", n.Refused, true},
		{"not accepted", "the publisher refused them; they wait as before", n.Failed, true},
		{"gone", "redriven, discarded or purged by others meanwhile", n.Gone, false},
		{"pending", "not begun", n.Pending, false},
	} {
		if one.Letters > 0 || one.Outcome == "redriven" || one.Outcome == "came back" {
			some = append(some, one)
		}
	}
	return some
}

// OutcomeWords is an outcome of a letter that a campaign left behind, for people.
func OutcomeWords(outcome string) string {
	if outcome == "failed" {
		return "not accepted"
	}
	return spaced(outcome)
}

// LeftOutWords says why a campaign does not take letters. The topic or the campaign that it is about comes apart: a
// topic came with messages.
func LeftOutWords(l campaigns.LeftOut) (why, about string) {
	switch l.Why {
	case campaigns.NotAllowed:
		return "the campaigns may not publish to the topic", l.Topic
	case campaigns.NoOrigin:
		return "no origin topic is known; name a topic in the settings", ""
	case campaigns.InCampaign:
		return "another campaign has them:", l.Campaign
	case campaigns.Discarded:
		return "they are discarded; restore them first", ""
	case campaigns.CameBack:
		return "a redrive brought them back before; a person decides", ""
	case campaigns.NewerWaits:
		return "they failed again, and a newer letter of the message waits; redrive that one", ""
	case campaigns.Erased:
		return "they are erased, and have no message any more", ""
	}
	return l.Why, ""
}

package operate

import (
	"strings"

	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

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

// Outcome is what became of some letters of a campaign.
type Outcome struct {
	Name, Means string
	Letters     int
	Bad         bool // a person has to look
}

// Outcomes are the counts of a campaign that are not 0, with those that a person always asks for.
func Outcomes(n campaigns.Campaign) (some []Outcome) {
	for _, one := range []Outcome{
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
		if one.Letters > 0 || one.Name == "redriven" || one.Name == "came back" {
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

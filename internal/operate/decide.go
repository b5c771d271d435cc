package operate

import (
	"context"
	"strings"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Decision is what a person decides about letters: to discard them, or to restore discarded ones.
type Decision struct {
	// of the decision. The ids of its records begin with it, so that none is the id of a campaign.
	Name string
	From []letters.Status // the states of letters that it takes
	To   letters.Status
}

// The decisions.
var (
	Discard = Decision{"discard",
		[]letters.Status{letters.StatusWaiting, letters.StatusRefused, letters.StatusQuarantined},
		letters.StatusDiscarded}
	Restore = Decision{"restore", []letters.Status{letters.StatusDiscarded}, letters.StatusWaiting}
)

// NewID returns the id of a record that the decision will have.
func (d Decision) NewID() string { return d.Name + "-" + watermill.NewUUID() }

// Made reports whether a text is the id of a record of the decision.
func (d Decision) Made(id string) bool {
	rest, ok := strings.CutPrefix(id, d.Name+"-")
	return ok && len(rest) == 36 && !strings.ContainsFunc(rest, func(r rune) bool {
		return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'f')
	})
}

// Of chooses the letters of a record that nothing has changed since.
func (d Decision) Of(id string) letters.Filter {
	return letters.Filter{RedriveIDs: []string{id}, Statuses: []letters.Status{d.To}}
}

// Decide marks the letters of a selection, under an id if there is one. It returns how many, also with an error: one
// whose time is over goes on with the same selection.
func (d *Desk) Decide(ctx context.Context, who Person, what Decision, s Selection, id string) (n int, err error) {
	if err := who.allowed(Act); err != nil {
		return 0, err
	}
	act := who.act()
	act.RedriveID = id
	for _, f := range s.parts() {
		some, err := d.Store.MarkAll(ctx, f, what.To, act)
		if n += some; err != nil {
			return n, err
		}
	}
	return n, nil
}

// Decided returns the latest event under the id of a decision, or none.
func (d *Desk) Decided(ctx context.Context, id string) ([]letters.Event, error) {
	return d.Store.Audit(ctx, letters.EventFilter{RedriveIDs: []string{id}, NewestFirst: true, Limit: 1})
}

// happenedTo is how many letters are looked at to say who was first.
const happenedTo = 50

// Happened is what became of the letters of a selection that an action found changed, for the one who came second.
type Happened struct {
	Gone    bool // they are not there any more
	Various bool // not the same became of all
	letters.Head
}

// Happened says who did what to the letters of a selection.
func (d *Desk) Happened(ctx context.Context, s Selection) (h Happened, err error) {
	s.Filter.Statuses = letters.Statuses()
	heads, err := d.Sample(ctx, s, happenedTo)
	if err != nil || len(heads) == 0 {
		return Happened{Gone: err == nil}, err
	}
	h.Head = heads[0]
	for _, other := range heads[1:] {
		if other.Status != h.Status || other.Marked.By != h.Marked.By || other.Marked.Reason != h.Marked.Reason ||
			other.LeasedBy != h.LeasedBy {
			h.Various = true
		}
	}
	return h, nil
}

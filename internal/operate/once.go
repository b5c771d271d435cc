package operate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// What the ids of records begin with that are no campaigns: requests that a program may send twice.
const (
	shownBy   = "shown-"
	decidedBy = "sequence-"
	policyBy  = "policy-"
	heldBy    = "breaker-"
	erasedBy  = "erasure-"
	brokenBy  = "unlease-"
)

// IsRequest reports whether the id of a record is that of a request, and of no campaign.
func IsRequest(id string) bool {
	return slices.ContainsFunc([]string{shownBy, decidedBy, policyBy, heldBy, erasedBy, brokenBy},
		func(by string) bool { return strings.HasPrefix(id, by) })
}

// once is what the record has of the person, with the id of a request that may come twice. Without a key there is none.
func (p Person) once(by string) letters.Act {
	act := p.act()
	if p.Key != "" {
		act.RedriveID = by + p.Key
	}
	return act
}

// before returns the latest entry under the id of an act, or nil. It is an error if another request has it: of another
// person, for another reason, or not the same.
func (d *Desk) before(ctx context.Context, act letters.Act, same func(letters.Event) bool) (*letters.Event, error) {
	if act.RedriveID == "" {
		return nil, nil
	}
	events, err := d.Decided(ctx, act.RedriveID)
	if err != nil || len(events) == 0 {
		return nil, err
	}
	if e := &events[0]; e.By == act.By && e.Reason == act.Reason && same(*e) {
		return e, nil
	}
	return nil, fmt.Errorf("%w: %s is on record of another request", inside.ErrKeyReused, act.RedriveID)
}

// did reports whether the record has an entry under the id of an act. It is an error if another request has it.
func (d *Desk) did(ctx context.Context, act letters.Act) (bool, error) {
	e, err := d.before(ctx, act, func(e letters.Event) bool { return act.Detail == "" || e.Detail == act.Detail })
	return e != nil, err
}

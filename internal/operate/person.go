package operate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Right is what a person may do. Each right includes those before it.
type Right uint8

// The rights. LookWithoutPayload sees no payload, and no value of metadata.
const (
	Nothing Right = iota
	LookWithoutPayload
	Look
	Act
	Approve
)

// Person is who asks for something, and why.
type Person struct {
	Name   string
	Reason string
	Right  Right
	// Key names the request of a program that may send it twice. What was done under a key is not done again.
	Key string
}

// act is what the record has of the person.
func (p Person) act() letters.Act { return letters.Act{By: p.Name, Reason: p.Reason} }

// Forbidden is the error of a request that the person has no right to.
type Forbidden struct{ Why string }

func (f *Forbidden) Error() string { return f.Why }

// may returns an error if the person has less than a right.
func (p Person) may(right Right) error {
	if p.Right >= right {
		return nil
	}
	return &Forbidden{fmt.Sprintf("the right of %q is too little", p.Name)}
}

// MaySearch returns an error if a person may not search by a filter. What a person may not see, the person may not
// search for either: the answers would say it, a character at a time. A person who may act may see it, on record.
func (p Person) MaySearch(f letters.Filter, masks *privacy.Redactor) error {
	switch {
	case p.Right >= Act:
		return nil
	case p.Right < Look && (f.Payload != "" || len(f.Metadata) > 0 || f.Description != ""):
		return &Forbidden{"You may not see payloads and metadata, so you cannot search in them, and not in texts of " +
			"errors either."}
	case f.Payload != "" && masks != privacy.None():
		return &Forbidden{"Values of payloads are masked for you, so you cannot search in payloads. That needs the " +
			"right to operate."}
	}
	for key, value := range f.Metadata {
		if masks.Metadata(key, value) != value {
			return &Forbidden{"The value of this metadata is masked for you, so you cannot search for it. That needs the " +
				"right to operate."}
		}
	}
	return nil
}

// RightNames are the rights as faces name them.
var RightNames = [...]string{"none", "look without payload", "look", "operate", "approve"}

func (r Right) String() string { return RightNames[min(int(r), len(RightNames)-1)] }

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

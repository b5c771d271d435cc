package operate

import (
	"fmt"

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

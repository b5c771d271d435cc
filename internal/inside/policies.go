package inside

import (
	"errors"
	"time"
)

// ErrNoPolicy is the error of a policy that the service does not have, or of a cause that was never blocked for it.
var ErrNoPolicy = errors.New("there is no such policy, or the cause was never blocked for it: redrive policies list shows all")

// Policies are the standing policies of a service.
type Policies struct {
	// Frozen is the freeze of all policies, or nil.
	Frozen   *Stop    `json:"frozen,omitempty"`
	Policies []Policy `json:"policies"`
}

// Policy is a standing policy that a worker has, or had.
type Policy struct {
	Name string `json:"name"`
	// Rule is what the policy says, in words.
	Rule string `json:"rule"`
	// SeenAt is when a worker had it last, to the minute.
	SeenAt time.Time `json:"seen_at"`
	// Today is the number of its campaigns of the last 24 hours.
	Today int `json:"today"`
	// Frozen is the freeze of this policy, or nil.
	Frozen *Stop `json:"frozen,omitempty"`
	// Blocked are the causes that it does not touch until a person releases them.
	Blocked []Stop `json:"blocked,omitempty"`
}

// Stop is a freeze, or a cause that is blocked.
type Stop struct {
	Cause  string    `json:"cause,omitempty"`
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
}

// ErrKeyReused is the error of a request whose key is on record for another request.
var ErrKeyReused = errors.New("the key was used for another request")

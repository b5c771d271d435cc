// Package circuit has the state of a handler and scope, as a breaker reports it and a Store shares it.
package circuit

import "time"

// State is what the breaker does with the messages of a handler, as logs, metrics and JSON name it.
type State string

const (
	// Closed lets all messages pass.
	Closed State = "closed"
	// Open holds all messages until the next probe is due.
	Open State = "open"
	// HalfOpen holds all messages but one, the probe, whose outcome decides.
	HalfOpen State = "probing"
	// Ramping lets more messages pass every 250 ms: 1, 2, 4 and so on.
	Ramping State = "ramping"
	// Frozen holds all messages until Close of the Breaker, or Release of the Store, is called.
	Frozen State = "frozen"
)

// Status is the state of one handler and scope, in this process or, from a Store, in a service.
type Status struct {
	// Handler is empty for a freeze of all handlers. Scope is empty without the breaker's Config.Scope.
	Handler string `json:"handler"`
	Scope   string `json:"scope,omitempty"`
	// Instance names the process that found an outage, if a Store says so.
	Instance string `json:"instance,omitempty"`
	State    State  `json:"state"`
	// Since is when the state was last Closed.
	Since time.Time `json:"since"`
	// Reason and Cause say why the breaker is open.
	Reason string `json:"reason,omitempty"`
	Cause  string `json:"cause,omitempty"`
	// Actor is who froze the handler, if a Store says so.
	Actor string `json:"actor,omitempty"`
	// Waiting is the number of messages that this process holds.
	Waiting int `json:"waiting,omitzero"`
	// NextProbe is when the next message is tried, if the state is Open.
	NextProbe time.Time `json:"next_probe,omitzero"`
}

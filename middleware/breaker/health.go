package breaker

import (
	"cmp"
	"slices"
	"time"
)

// Status is the state of one handler and scope, in this process or, from Store.List, in a service.
type Status struct {
	// Handler is empty for a freeze of all handlers. Scope is empty without Config.Scope.
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

// Health returns the state of each handler and scope that is not Closed, or that holds a message, in the order of their
// names.
func (b *Breaker) Health() []Status {
	found := []Status{}
	if b == nil {
		return found
	}
	b.mu.RLock()
	circuits := make([]*circuit, 0, len(b.circuits))
	for _, c := range b.circuits {
		circuits = append(circuits, c)
	}
	for _, f := range b.freezes {
		found = append(found, Status{Handler: f.handler, State: Frozen, Since: f.since, Reason: f.reason,
			Actor:   f.actor,
			Waiting: int(f.waiting.Load())})
	}
	b.mu.RUnlock()
	for _, c := range circuits {
		c.mu.Lock()
		if c.state.name() != Closed || c.waiting() > 0 {
			found = append(found, c.status())
		}
		c.mu.Unlock()
	}
	slices.SortStableFunc(found, func(a, b Status) int { // a freeze stays before an outage
		return cmp.Or(cmp.Compare(a.Handler, b.Handler), cmp.Compare(a.Scope, b.Scope))
	})
	return found
}

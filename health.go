package spillway

import "github.com/watermill-spillway/spillway/middleware/outageguard"

// Health is what a Channel knows about what its handlers need. It is made for a health endpoint, as JSON.
type Health struct {
	// OK reports whether no handler's messages are held.
	OK bool `json:"ok"`
	// Handlers has the handlers whose messages are held, with the state of their guard.
	Handlers []outageguard.Status `json:"handlers"`
}

// Health returns the state of all handlers. A service whose downstream is away is not broken: do not let a supervisor restart it for
// that. Without Config.Outage, Health reports that all is well.
func (ch *Channel) Health() Health {
	h := Health{OK: true, Handlers: []outageguard.Status{}}
	if ch.outage != nil {
		h.Handlers = ch.outage.Health()
	}
	for _, status := range h.Handlers {
		h.OK = h.OK && status.State == outageguard.Closed
	}
	return h
}

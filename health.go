package spillway

import (
	"time"

	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

// Health is what a Channel knows about what its handlers need. It is made for a health endpoint, as JSON.
type Health struct {
	// OK reports whether no handler's messages are held, and no store is away.
	OK bool `json:"ok"`
	// Handlers has the handlers whose messages are held, with the state of their breaker.
	Handlers []breaker.Status `json:"handlers"`
	// Stores has the channel's own stores and publishers that are away: the store of keys, the publisher of dead
	// letters, that of the stages or their store. They do not depend on Config.Breaker.
	Stores []StoreHealth `json:"stores,omitempty"`
	// Budgets has the retry budgets that are spent. Messages wait for them, or go to their next stage, so OK does not
	// depend on them.
	Budgets []middleware.BudgetSpent `json:"budgets,omitempty"`
}

// StoreHealth is a store or publisher of the channel that is away.
type StoreHealth struct {
	// Name says what is away.
	Name  string    `json:"name"`
	Since time.Time `json:"since"`
	// Waiting is the number of messages that are held for it.
	Waiting int `json:"waiting"`
}

// Health returns the state of all handlers. A service whose downstream is away is not broken: do not let a supervisor
// restart it for that. Without Config.Breaker, Health knows the channel's own stores alone.
func (ch *Channel) Health() Health {
	h := Health{OK: true, Handlers: ch.breaker.Health()}
	for _, status := range h.Handlers {
		h.OK = h.OK && status.State == breaker.Closed
	}
	for _, store := range ch.stores {
		if report, away := store.Report(); away {
			h.OK = false
			h.Stores = append(h.Stores, StoreHealth{Name: report.Name, Since: report.Since, Waiting: report.Waiting})
		}
	}
	h.Budgets = ch.retry.Budgets()
	return h
}

package campaigns

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Store returns the Store of New.
func (c *Campaigns) Store() *letters.Store { return c.store }

// Summary counts the campaigns of a service.
type Summary struct {
	// States has the number of campaigns in each state.
	States map[State]int `json:"states"`
	// Stopped is the number of paused campaigns that stopped themselves, because too many letters failed again, and wait
	// for Resume.
	Stopped int `json:"stopped"`
}

// Summary counts the campaigns of the service by their states. It is made for metrics.
func (c *Campaigns) Summary(ctx context.Context) (s Summary, err error) {
	if err := c.usable(ctx); err != nil {
		return s, err
	}
	err = c.query(ctx, func() { s.States = make(map[State]int) }, func(rows *sql.Rows) error {
		var state string
		var n int
		err := rows.Scan(&state, &n)
		s.States[State(state)] = n
		return err
	}, `SELECT state, COUNT(*) FROM spillway_campaigns WHERE service = ? GROUP BY state`, c.service())
	if err == nil && s.States[Paused] > 0 {
		err = c.query(ctx, func() {}, func(rows *sql.Rows) error { return rows.Scan(&s.Stopped) },
			`SELECT COUNT(*) FROM spillway_campaign_events WHERE actor = ? AND seq IN (
	SELECT MAX(e.seq) FROM spillway_campaign_events AS e JOIN spillway_campaigns AS c ON c.id = e.campaign
	WHERE c.service = ? AND c.state = 'paused' AND e.what = 'paused' GROUP BY e.campaign)`, c.db.Text(ByItself), c.service())
	}
	if err != nil {
		return Summary{}, fmt.Errorf("campaigns: count the campaigns: %w", err)
	}
	return s, nil
}

package campaigns

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Inside returns what Spillway's own packages call of Campaigns, and their users do not. Nothing is promised of it.
func (c *Campaigns) Inside() inside.Campaigns[*letters.Store, State, Request, Plan] {
	return (*inner)(c)
}

// inner is Campaigns with the methods that only Spillway's own packages call.
type inner Campaigns

func (in *inner) Store() *letters.Store { return in.store }

func (in *inner) Summary(ctx context.Context) (s inside.Summary[State], err error) {
	c := (*Campaigns)(in)
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
	if err == nil {
		err = c.query(ctx, func() {}, func(rows *sql.Rows) error { return rows.Scan(&s.Blocked) },
			`SELECT COUNT(*) FROM spillway_policies WHERE service = ? AND cause <> '' AND stopped = 1`, c.service())
	}
	if err != nil {
		return inside.Summary[State]{}, fmt.Errorf("campaigns: count the campaigns: %w", err)
	}
	return s, nil
}

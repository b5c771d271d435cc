package campaigns

import (
	"context"
	"database/sql"
	"fmt"
	"os"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
)

// ByItself is Act.By of what a worker did.
const ByItself = "spillway"

// record adds an event within the transaction of what it records.
func (c *Campaigns) record(ctx context.Context, tx *sql.Tx, id string, what string, act Act, details string) error {
	_, err := c.exec(ctx, tx,
		`INSERT INTO spillway_campaign_events (campaign, occurred_at, what, actor, reason, details) VALUES (?, now_us(), ?, ?, ?, ?)`,
		c.db.Text(id), c.db.Text(what), c.db.Text(act.By), c.db.Text(act.Reason), c.db.Text(act.keyed(details)))
	return err
}

// recordOnce notes why a worker does not do a campaign now. What is on record already is not recorded again.
func (c *Campaigns) recordOnce(ctx context.Context, id string, what string, why string) error {
	host, _ := os.Hostname() // a worker without a name is on record too
	return c.write(ctx, func(tx *sql.Tx) error {
		known := 0
		// one worker at a time
		err := c.within(ctx, tx, func(*sql.Rows) error {
			return nil
		}, `SELECT id FROM spillway_campaigns WHERE id = ?`+c.lock(), c.db.Text(id))
		if err != nil {
			return err
		}
		err = c.within(ctx, tx, func(rows *sql.Rows) error { return rows.Scan(&known) },
			`SELECT COUNT(*) FROM spillway_campaign_events WHERE campaign = ? AND what = ? AND reason = ?`,
			c.db.Text(id), c.db.Text(what), c.db.Text(why))
		if err != nil || known > 0 {
			return err
		}
		return c.record(ctx, tx, id, what, Act{By: ByItself, Reason: why}, boundedtext.Text("a worker on "+host, 100))
	})
}

func (in *inner) History(ctx context.Context, id string, after int64) (events []inside.CampaignEvent, err error) {
	c := (*Campaigns)(in)
	if err := c.usable(ctx); err != nil {
		return nil, err
	}
	if _, err := c.Get(ctx, id); err != nil {
		return nil, err
	}
	err = c.query(ctx, func() { events = nil }, func(rows *sql.Rows) error {
		var e inside.CampaignEvent
		var at int64
		err := rows.Scan(&e.Seq, &at, &e.Kind, &e.By, &e.Reason, &e.Details)
		e.At = fromMicro(at)
		events = append(events, e)
		return err
	}, `SELECT seq, occurred_at, what, actor, reason, details FROM spillway_campaign_events WHERE campaign = ? AND seq > ? ORDER BY seq LIMIT 1000`,
		c.db.Text(checkedID(id)), after)
	if err != nil {
		return nil, fmt.Errorf("campaigns: history of %q: %w", checkedID(id), err)
	}
	return events, nil
}

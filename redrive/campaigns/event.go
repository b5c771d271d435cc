package campaigns

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
)

// EventKind is something that was done with a campaign.
type EventKind string

// What is on record of a campaign.
const (
	EventStarted         EventKind = "started"
	EventApproved        EventKind = "approved"
	EventRan             EventKind = "ran"
	EventHeld            EventKind = "held for approval"
	EventPaused          EventKind = "paused"
	EventResumed         EventKind = "resumed"
	EventCancelled       EventKind = "cancelled"
	EventRateSet         EventKind = "rate set"
	EventCanaryPublished EventKind = "canary published"
	EventFinished        EventKind = "finished"
	EventPurged          EventKind = "letters purged"
	// EventLeft says that a worker cannot do the campaign, and why. Another worker may be able to. Each reason is on record
	// once.
	EventLeft EventKind = "left to other workers"
	// EventWaiting says that a campaign waits for its turn: more campaigns have letters due than a worker works on at the same
	// time.
	EventWaiting EventKind = "waits for its turn"
)

// Event is one thing that was done with a campaign.
type Event struct {
	// Seq orders events.
	Seq int64 `json:"seq"`
	// At is by the database's clock.
	At   time.Time `json:"at"`
	Kind EventKind `json:"what"`
	Act
	// Details has numbers, such as the rate that was set.
	Details string `json:"details,omitempty"`
}

// ByItself is Act.By of what a worker did.
const ByItself = "spillway"

// record adds an event within the transaction of what it records.
func (c *Campaigns) record(ctx context.Context, tx *sql.Tx, id string, what EventKind, act Act, details string) error {
	_, err := c.exec(ctx, tx,
		`INSERT INTO spillway_campaign_events (campaign, occurred_at, what, actor, reason, details) VALUES (?, now_us(), ?, ?, ?, ?)`,
		c.db.Text(id), c.db.Text(string(what)), c.db.Text(act.By), c.db.Text(act.Reason), c.db.Text(details))
	return err
}

// recordOnce notes why a worker does not do a campaign now. What is on record already is not recorded again.
func (c *Campaigns) recordOnce(ctx context.Context, id string, what EventKind, why string) error {
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
			c.db.Text(id), c.db.Text(string(what)), c.db.Text(why))
		if err != nil || known > 0 {
			return err
		}
		return c.record(ctx, tx, id, what, Act{By: ByItself, Reason: why}, boundedtext.Text("a worker on "+host, 100))
	})
}

// History returns what was done with a campaign, the oldest first, at most 1,000 events after a Seq. The events stay on
// record after the campaign has ended.
func (c *Campaigns) History(ctx context.Context, id string, after int64) (events []Event, err error) {
	if err := c.usable(ctx); err != nil {
		return nil, err
	}
	if _, err := c.Get(ctx, id); err != nil {
		return nil, err
	}
	err = c.query(ctx, func() { events = nil }, func(rows *sql.Rows) error {
		var e Event
		var at int64
		var what string
		err := rows.Scan(&e.Seq, &at, &what, &e.By, &e.Reason, &e.Details)
		e.At, e.Kind = fromMicro(at), EventKind(what)
		events = append(events, e)
		return err
	}, `SELECT seq, occurred_at, what, actor, reason, details FROM spillway_campaign_events WHERE campaign = ? AND seq > ? ORDER BY seq LIMIT 1000`,
		c.db.Text(checkedID(id)), after)
	if err != nil {
		return nil, fmt.Errorf("campaigns: history of %q: %w", checkedID(id), err)
	}
	return events, nil
}

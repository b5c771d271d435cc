package campaigns

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/watermill-spillway/spillway/internal/inside"
)

// keyed stands before Act.Key in the details of an event.
const keyed = " request "

// keyed are the details of an event with the key.
func (a Act) keyed(details string) string {
	if a.Key == "" {
		return details
	}
	return strings.TrimSpace(details + keyed + a.Key)
}

// acted reports whether a campaign's record has a call with the key of an act. It locks the campaign, so that of two
// such calls at the same time the second finds the first. It is an error if the call on record was another one.
func (c *Campaigns) acted(ctx context.Context, tx *sql.Tx, id string, act Act, does call) (done bool, err error) {
	if act.Key == "" {
		return false, nil
	}
	err = c.within(ctx, tx, func(*sql.Rows) error { return nil },
		`SELECT id FROM spillway_campaigns WHERE id = ?`+c.lock(), c.db.Text(id))
	if err != nil {
		return false, err
	}
	var was Act
	var did call
	err = c.within(ctx, tx, func(rows *sql.Rows) error {
		done = true
		return rows.Scan(&did.what, &was.By, &was.Reason, &did.details)
	}, `SELECT what, actor, reason, details FROM spillway_campaign_events WHERE campaign = ? AND details LIKE ?`,
		c.db.Text(id),
		c.db.Text("%"+keyed[1:]+act.Key))
	same := was.By == act.By && was.Reason == act.Reason && did.what == does.what && did.details == act.keyed(does.details)
	if err == nil && done && !same {
		err = fmt.Errorf("%w: another act on campaign %q has it", inside.ErrKeyReused, id)
	}
	return done, err
}

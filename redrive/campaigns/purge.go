package campaigns

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
)

// Purge deletes which letters the campaigns had that ended before a time, in small transactions, and returns how many
// rows it deleted. The campaigns, their counts and their History stay, and so do the letters and their events. For each
// campaign it records act in its History. It can be called again after an error.
func (c *Campaigns) Purge(ctx context.Context, before time.Time, act Act) (rows int, err error) {
	if err := c.usable(ctx); err != nil {
		return 0, err
	}
	if err := act.validate(); err != nil {
		return 0, wrong{err}
	}
	if before.IsZero() {
		return 0, errors.New("campaigns: purge: the time is zero: say before when a campaign must have ended")
	}
	for {
		var ids []string
		err := c.query(ctx, func() { ids = nil }, func(found *sql.Rows) error {
			var id string
			err := found.Scan(&id)
			ids = append(ids, id)
			return err
		}, `SELECT id FROM spillway_campaigns WHERE service = ? AND (state = 'finished' OR state = 'cancelled' AND swept = 1) AND ended_at < ?
AND EXISTS (SELECT 1 FROM spillway_campaign_letters WHERE campaign = id) ORDER BY created_at, id LIMIT 100`, c.service(), before.UnixMicro())
		for _, id := range ids {
			if err == nil {
				err = c.purge(ctx, id, act, &rows)
			}
		}
		if err != nil {
			return rows, fmt.Errorf("campaigns: purge: %w", err)
		}
		if len(ids) == 0 {
			return rows, nil
		}
	}
}

// purge deletes the rows of one campaign. The last transaction records it.
func (c *Campaigns) purge(ctx context.Context, id string, act Act, deleted *int) error {
	for n, all := 0, 0; ; {
		err := c.write(ctx, func(tx *sql.Tx) error {
			n = 0
			last := int64(0)
			err := c.within(ctx, tx, func(rows *sql.Rows) error { n++; return rows.Scan(&last) },
				`SELECT seq FROM spillway_campaign_letters WHERE campaign = ? ORDER BY seq LIMIT ?`, c.db.Text(id), sweepAtOnce)
			if err == nil && n > 0 {
				_, err = c.exec(ctx, tx, `DELETE FROM spillway_campaign_letters WHERE campaign = ? AND seq <= ?`, c.db.Text(id),
					last)
			}
			if err == nil && n < sweepAtOnce {
				err = c.record(ctx, tx, id, inside.CampaignPurged, act, fmt.Sprintf("%d letters", all+n))
			}
			return err
		})
		if err != nil {
			return err
		}
		*deleted, all = *deleted+n, all+n
		if n < sweepAtOnce {
			return nil
		}
	}
}

package campaigns

import (
	"context"
	"database/sql"
	"fmt"
)

// Behind are letters that a campaign did not redrive, for one reason.
type Behind struct {
	// Outcome is refused, failed or gone, as the counts of the campaign are named.
	Outcome string `json:"outcome"`
	// Why says why, such as the topic that is not allowed. It is empty if that is not on record, or was purged.
	Why     string `json:"why,omitempty"`
	Letters int    `json:"letters"`
}

// maxBehind is how many reasons LeftBehind returns: errors of publishers come with messages, and may be many.
const maxBehind = 20

// LeftBehind says why a campaign left letters behind that it had selected: those of Counts.Refused, Failed and Gone, by
// reason, the most first, at most 20 reasons.
func (c *Campaigns) LeftBehind(ctx context.Context, id string) (behind []Behind, err error) {
	if err := c.usable(ctx); err != nil {
		return nil, err
	}
	if _, err := c.Get(ctx, id); err != nil {
		return nil, err
	}
	err = c.query(ctx, func() { behind = nil }, func(rows *sql.Rows) error {
		var b Behind
		err := rows.Scan(&b.Outcome, &b.Why, &b.Letters)
		behind = append(behind, b)
		return err
	}, `SELECT state, why, COUNT(*) FROM spillway_campaign_letters WHERE campaign = ? AND state IN ('`+string(refused)+`', '`+string(failed)+`', '`+string(gone)+`')
GROUP BY state, why ORDER BY COUNT(*) DESC, why LIMIT ?`, c.db.Text(checkedID(id)), maxBehind)
	if err != nil {
		return nil, fmt.Errorf("campaigns: what %q left behind: %w", checkedID(id), err)
	}
	return behind, nil
}

package campaigns

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/inside"
)

// maxBehind is how many reasons LeftBehind returns: errors of publishers come with messages, and may be many.
const maxBehind = 20

func (in *inner) LeftBehind(ctx context.Context, id string) (behind []inside.Behind, err error) {
	c := (*Campaigns)(in)
	if err := c.usable(ctx); err != nil {
		return nil, err
	}
	if _, err := c.Get(ctx, id); err != nil {
		return nil, err
	}
	err = c.query(ctx, func() { behind = nil }, func(rows *sql.Rows) error {
		var b inside.Behind
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

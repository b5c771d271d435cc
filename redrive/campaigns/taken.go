package campaigns

import (
	"context"
	"database/sql"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// inCampaigns returns those of the letters that a campaign has, with its id.
func (c *Campaigns) inCampaigns(ctx context.Context, found []letters.Letter) (map[int64]string, error) {
	args := make([]any, len(found))
	for i, l := range found {
		args[i] = l.Seq
	}
	taken := make(map[int64]string)
	err := c.query(ctx, func() { clear(taken) }, func(rows *sql.Rows) error {
		var seq int64
		var id string
		err := rows.Scan(&seq, &id)
		taken[seq] = id
		return err
	}, `SELECT seq, campaign FROM spillway_campaign_letters WHERE claim IN (`+marks(len(found))+`)`, args...)
	return taken, err
}

package campaigns

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

func (in *inner) Holding(ctx context.Context, seqs ...int64) (map[int64]string, error) {
	c := (*Campaigns)(in)
	if err := c.usable(ctx); err != nil {
		return nil, err
	}
	if len(seqs) > MaxSeqs {
		return nil, fmt.Errorf("campaigns: holding %d letters: at most %d are possible: use several calls", len(seqs),
			MaxSeqs)
	}
	holding, err := c.holding(ctx, seqs)
	if err != nil {
		return nil, fmt.Errorf("campaigns: holding %d letter(s): %w", len(seqs), err)
	}
	return holding, nil
}

func (c *Campaigns) holding(ctx context.Context, seqs []int64) (map[int64]string, error) {
	taken := make(map[int64]string)
	if len(seqs) == 0 {
		return taken, nil
	}
	claimed, args := c.claimed(seqs)
	err := c.query(ctx, func() { clear(taken) }, func(rows *sql.Rows) error {
		var seq int64
		var id string
		err := rows.Scan(&seq, &id)
		taken[seq] = id
		return err
	}, `SELECT seq, campaign FROM spillway_campaign_letters JOIN spillway_campaigns ON spillway_campaigns.id = campaign
WHERE service = ?`+claimed, append([]any{c.service()}, args...)...)
	return taken, err
}

// inCampaigns is holding for letters that were read.
func (c *Campaigns) inCampaigns(ctx context.Context, found []letters.Letter) (map[int64]string, error) {
	seqs := make([]int64, len(found))
	for i, l := range found {
		seqs[i] = l.Seq
	}
	return c.holding(ctx, seqs)
}

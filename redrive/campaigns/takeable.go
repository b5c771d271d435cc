package campaigns

import (
	"context"
	"database/sql"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// takeable returns the next letters that a campaign may take, and the rest behind them. It counts those that it passes
// over. If Request.Max is near, it passes over letters that another campaign has, so that they do not count towards it,
// and ends at most.
func (c *Campaigns) takeable(ctx context.Context, tx *sql.Tx, r *Request, found []letters.Head,
	newer map[int64]bool, most int, out *leftOut) (rows, rest []letters.Head, err error) {
	chunk := found[:min(50, len(found))]
	held := make(map[int64]string)
	near := r.Max > 0 && most < len(chunk)
	if near {
		if err := c.claims(ctx, tx, chunk, func(seq int64, campaign string) { held[seq] = campaign }); err != nil {
			return nil, nil, err
		}
	}
	back, err := c.cameBack(ctx, tx, r, chunk)
	if err != nil {
		return nil, nil, err
	}
	for i, l := range chunk {
		topic, why := c.takes(r, l.Status, l.Topic)
		if why == "" && back[l.Seq] {
			topic, why = "", CameBack
		}
		if why == "" && newer[l.Seq] {
			topic, why = "", NewerWaits
		}
		campaign, is := held[l.Seq]
		switch {
		case why != "":
			out.add(why, topic, "", 1)
		case is:
			out.add(InCampaign, "", campaign, 1)
		default:
			rows = append(rows, l)
		}
		if near && len(rows) == most {
			return rows, found[i+1:], nil
		}
	}
	return rows, found[len(chunk):], nil
}

// cameBack returns those of the letters that no policy may take, if a policy asks.
func (c *Campaigns) cameBack(ctx context.Context, tx *sql.Tx, r *Request, of []letters.Head) (map[int64]bool, error) {
	if r.policy == "" {
		return nil, nil
	}
	seqs := make([]int64, len(of))
	for i, l := range of {
		seqs[i] = l.Seq
	}
	return c.store.Inside().CameBack(ctx, tx, seqs...)
}

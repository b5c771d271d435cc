package console

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// heldShown is how many campaigns the page names.
const heldShown = 20

// held is who works on letters of a selection, or is about to.
type held struct {
	Campaigns []heldBy // the most letters first
	More      int      // campaigns that are not named
	Leased    int      // letters that a program works on now
	First     int      // how many letters were looked at, if there are more
	Slow      bool     // it was not found out in time
}

// heldBy is a campaign with letters of a selection.
type heldBy struct {
	Letters                     int
	Link, ID, State, By, Reason string
}

// heldOf says who has letters of a selection. It looks at the first ones, as many as a dry run reads.
func (c *Console) heldOf(r *request, s operate.Selection) (h held, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), careful*c.counting)
	defer cancel()
	if h.Leased, err = c.leased(ctx, s); err == nil {
		err = c.inCampaigns(ctx, r, s, &h)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && r.Context().Err() == nil {
		return held{Slow: true}, nil
	}
	return h, err
}

// leased counts the letters of a selection that a program works on.
func (c *Console) leased(ctx context.Context, s operate.Selection) (n int, err error) {
	f := s.Filter
	f.Leased = true
	if len(s.Seqs) == 0 {
		return c.store.Count(ctx, f)
	}
	f.After, f.MaxSeq = s.Seqs[0]-1, s.Seqs[len(s.Seqs)-1]
	_, err = c.each(ctx, f, func(heads []letters.Head) error {
		for _, h := range heads {
			if _, chosen := slices.BinarySearch(s.Seqs, h.Seq); chosen {
				n++
			}
		}
		return nil
	})
	return n, err
}

// inCampaigns finds the campaigns that have letters of a selection. Without an open campaign it reads no letter.
func (c *Console) inCampaigns(ctx context.Context, r *request, s operate.Selection, h *held) error {
	open, err := c.campaigns.List(ctx,
		campaigns.List{States: slices.DeleteFunc(slices.Clone(campaigns.States), campaigns.State.Ended), Limit: 1000})
	if err != nil || len(open) == 0 {
		return err
	}
	number := map[string]int{}
	count := func(seqs []int64) error {
		holding, err := c.campaigns.Holding(ctx, seqs...)
		for campaign := range maps.Values(holding) {
			number[campaign]++
		}
		return err
	}
	if len(s.Seqs) > 0 {
		err = count(s.Seqs)
	} else {
		h.First, err = c.each(ctx, s.Filter, func(heads []letters.Head) error { return count(seqsOf(heads)) })
	}
	for _, one := range open {
		if n := number[one.ID]; n > 0 {
			h.Campaigns = append(h.Campaigns,
				heldBy{n, r.link("campaigns/"+one.ID, nil), one.ID, operate.StateWords(one.State), one.Request.By,
					one.Request.Reason})
		}
	}
	slices.SortStableFunc(h.Campaigns, func(a, b heldBy) int { return cmp.Compare(b.Letters, a.Letters) })
	h.More = max(0, len(h.Campaigns)-heldShown)
	h.Campaigns = h.Campaigns[:len(h.Campaigns)-h.More]
	return err
}

// each calls see with the first letters that a filter chooses, as many as a dry run reads. It returns their number if
// there may be more.
func (c *Console) each(ctx context.Context, f letters.Filter, see func([]letters.Head) error) (first int, err error) {
	f.Limit = letters.MaxLimit
	for seen := 0; seen < planned; {
		heads, err := c.store.Heads(ctx, f)
		if err != nil || len(heads) == 0 {
			return 0, err
		}
		if err := see(heads); err != nil {
			return 0, err
		}
		seen, f.After = seen+len(heads), heads[len(heads)-1].Seq
	}
	return planned, nil
}

func seqsOf(heads []letters.Head) []int64 {
	seqs := make([]int64, len(heads))
	for i, h := range heads {
		seqs[i] = h.Seq
	}
	return seqs
}

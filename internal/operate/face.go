package operate

import (
	"context"
	"strings"

	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// MostCauses is how many causes a page has.
const MostCauses = letters.MaxListed

// Causes returns a page of the causes of the letters that a filter chooses, the largest first, without the first skip of
// them.
func (d *Desk) Causes(ctx context.Context, f letters.Filter, skip int) ([]letters.Group, error) {
	if f.Limit = min(f.Limit, MostCauses); skip == 0 {
		return d.Store.Groups(ctx, f)
	}
	some, err := d.Store.Inside().CausesBySize(ctx, f, skip, f.Limit)
	if err != nil || len(some) == 0 {
		return nil, err
	}
	f.Causes = some
	return d.Store.Groups(ctx, f)
}

// CausesBegin returns the causes whose hash begins so, whatever became of their letters.
func (d *Desk) CausesBegin(ctx context.Context, begin string) ([]letters.Group, error) {
	some, err := d.Store.Inside().CausesBegin(ctx, begin, MostCauses)
	if err != nil || len(some) == 0 {
		return nil, err
	}
	return d.Store.Groups(ctx, letters.Filter{Causes: some, Statuses: letters.Statuses(), Limit: MostCauses})
}

// CampaignsBegin returns campaigns as they are whose id begins so: all that there are, up to a page of them.
func (d *Desk) CampaignsBegin(ctx context.Context, begin string) (found []campaigns.Campaign, err error) {
	const most = 1000
	for l := (campaigns.List{Limit: most}); begin != ""; {
		page, err := d.Campaigns.List(ctx, l)
		if err != nil {
			return nil, err
		}
		for _, c := range page {
			if strings.HasPrefix(c.ID, begin) {
				found = append(found, c)
			}
		}
		if len(page) < most || len(found) >= most {
			break
		}
		l.Before, l.BeforeID = page[most-1].CreatedAt, page[most-1].ID
	}
	return found, nil
}

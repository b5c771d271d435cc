package operate

import (
	"context"
	"strings"

	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// What a face asks of a desk that is not on a database too: the command redrive over the API of a console.

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

// Heads returns the letters that a filter chooses, a page of them.
func (d *Desk) Heads(ctx context.Context, f letters.Filter) ([]letters.Head, error) {
	return d.Store.Heads(ctx, f)
}

// HeadOf returns a letter without its content.
func (d *Desk) HeadOf(ctx context.Context, seq int64) (letters.Head, error) {
	found, err := d.Store.Heads(ctx, letters.Filter{After: seq - 1, MaxSeq: seq, Statuses: letters.Statuses()})
	if err == nil && len(found) == 0 {
		err = letters.ErrNotFound
	}
	if err != nil {
		return letters.Head{}, err
	}
	return found[0], nil
}

// Whole returns a letter with its record, as it is: the face masks it. That a person sees it unmasked is on record
// before.
func (d *Desk) Whole(ctx context.Context, who Person, seq int64, unmasked bool) (l Letter, events []letters.Event,
	err error) {
	if unmasked {
		err = d.Show(ctx, who, seq)
	}
	if err == nil {
		l, err = d.Letter(ctx, seq)
	}
	if err == nil {
		events, err = d.Store.History(ctx, seq)
	}
	return l, events, err
}

// CampaignByID returns a campaign as it is.
func (d *Desk) CampaignByID(ctx context.Context, id string) (campaigns.Campaign, error) {
	return d.Campaigns.Get(ctx, id)
}

// CampaignList returns campaigns as they are, a page of them.
func (d *Desk) CampaignList(ctx context.Context, l campaigns.List) ([]campaigns.Campaign, error) {
	return d.Campaigns.List(ctx, l)
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

package operate

import (
	"context"

	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// What a face asks of a desk that is not on a database too: the command redrive over the API of a console.

// Causes returns the causes of the letters that a filter chooses.
func (d *Desk) Causes(ctx context.Context, f letters.Filter) ([]letters.Group, error) {
	return d.Store.Groups(ctx, f)
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

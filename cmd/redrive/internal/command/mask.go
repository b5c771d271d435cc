package command

import (
	"slices"

	"github.com/watermill-spillway/spillway/internal/masked"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// maskedCampaign returns a campaign as it may be shown: its filter and its edit have values of messages.
func (a *app) maskedCampaign(c campaigns.Campaign) campaigns.Campaign {
	c.Request = masked.Request(a.privacy, c.Request)
	return c
}

// maskedEvents returns entries of the record as they may be shown.
func (a *app) maskedEvents(events []letters.Event) []letters.Event {
	shown := slices.Clone(events)
	for i := range shown {
		shown[i].Detail = masked.Detail(a.privacy, shown[i].Detail)
	}
	return shown
}

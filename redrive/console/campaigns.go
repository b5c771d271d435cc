package console

import (
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// campaignsAtOnce is how many campaigns a page of the list has.
const campaignsAtOnce = 50

// campaignList is the list of campaigns, the newest first.
type campaignList struct {
	States    []stateBox
	Campaigns []campaignRow
	Next      string
	Action    string
	Policies  policiesView
}

type stateBox struct {
	State, Name string
	Checked     bool
}

type campaignRow struct {
	campaignLine
	Created time.Time
	Ended   bool
}

func (c *console) campaignList(r *request) (answer, error) {
	list := campaigns.List{Limit: campaignsAtOnce + 1}
	view := campaignList{Action: r.link("campaigns", nil)}
	for _, state := range campaigns.States {
		checked := slices.Contains(r.query["state"], string(state))
		if checked {
			list.States = append(list.States, state)
		}
		view.States = append(view.States, stateBox{string(state), operate.StateWords(state), checked})
	}
	var err error
	if list.Before, err = operate.Moment("before", r.query.Get("before"), r.now); err != nil {
		return answer{}, err
	}
	list.BeforeID = r.query.Get("before-id")
	found, err := c.desk.Campaigns.List(r.http.Context(), list)
	if err != nil {
		return answer{}, err
	}
	if len(found) > campaignsAtOnce {
		found = found[:campaignsAtOnce]
		last := found[len(found)-1]
		q := map[string][]string{"state": r.query["state"], "before": {last.CreatedAt.Format(time.RFC3339Nano)},
			"before-id": {last.ID}}
		view.Next = r.link("campaigns", q)
	}
	for _, one := range found {
		view.Campaigns = append(view.Campaigns, campaignRow{lineOf(r, one), one.CreatedAt, one.State.Ended()})
	}
	if list.Before.IsZero() {
		if view.Policies, err = c.policies(r); err != nil {
			return answer{}, err
		}
	}
	return answer{page: "campaigns", title: "Campaigns", view: view}, nil
}

// lineOf is a campaign in a line.
func lineOf(r *request, c campaigns.Campaign) campaignLine {
	return campaignLine{
		ID: c.ID, Link: r.link("campaigns/"+c.ID, nil), State: operate.StateWords(c.State), By: c.Request.By,
		Reason: strings.TrimSpace(c.Request.Reason), Done: c.Selected - c.Pending, Selected: c.Selected,
		FailedAgain: c.FailedAgain,
	}
}

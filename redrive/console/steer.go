package console

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// steering is the page of an action that was not done: it has the reason, and the form with what was typed.
type steering struct {
	Action          action
	Reason, Rate    string
	Problem, Detail string
	Back, State     string
	Again           bool // the form can be sent again
}

// The actions on a campaign. Each is a route of its own, with a right of its own.
func (c *Console) pause(r *request) (answer, error) {
	return c.steer(r, "pause", (*campaigns.Campaigns).Pause)
}

func (c *Console) resume(r *request) (answer, error) {
	return c.steer(r, "resume", (*campaigns.Campaigns).Resume)
}

func (c *Console) cancel(r *request) (answer, error) {
	return c.steer(r, "cancel", (*campaigns.Campaigns).Cancel)
}

func (c *Console) approve(r *request) (answer, error) {
	return c.steer(r, "approve", (*campaigns.Campaigns).Approve)
}

func (c *Console) setRate(r *request) (answer, error) {
	return c.steer(r, "rate", func(all *campaigns.Campaigns, ctx context.Context, id string, act campaigns.Act) (campaigns.Campaign, error) {
		typed := strings.ReplaceAll(strings.TrimSpace(r.PostForm.Get("rate")), ",", "")
		rate, err := strconv.ParseFloat(ungrouped(typed), 64)
		if err != nil {
			return campaigns.Campaign{}, badInput(text("settings.number", text("settings.rate"), typed))
		}
		return all.SetRate(ctx, id, rate, act)
	})
}

// steer does an action, and goes to the campaign.
func (c *Console) steer(r *request, name string, do func(*campaigns.Campaigns, context.Context, string, campaigns.Act) (campaigns.Campaign, error)) (answer, error) {
	form, err := r.form()
	if err != nil {
		return answer{}, err
	}
	id := r.values["id"]
	act := campaigns.Act{By: r.person.Name, Reason: strings.TrimSpace(form.Get("reason"))}
	var now campaigns.Campaign
	if act.Reason == "" {
		err = badInput(text("act.noreason"))
	} else {
		now, err = do(c.campaigns, r.Context(), id, act)
	}
	switch {
	case err == nil:
		return answer{to: r.link("campaigns/"+now.ID, nil)}, nil
	case errors.Is(err, campaigns.ErrNotFound):
		return answer{}, err
	}
	p := c.problemOf(r, err)
	view := steering{
		Action: actionOf(r, name, id), Reason: act.Reason, Rate: strings.TrimSpace(form.Get("rate")), Problem: p.text, Detail: p.detail,
		Back: r.link("campaigns/"+id, nil), Again: p.status != http.StatusConflict,
	}
	if errors.Is(err, campaigns.ErrState) && now.ID != "" {
		state := text("campaign." + string(now.State))
		view.Problem = text("steer.state", state)
	}
	return answer{status: p.status, page: "steer", title: view.Action.Label, view: view}, nil
}

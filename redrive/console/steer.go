package console

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// steering is the page of an action that was not done: it has the reason, and the form with what was typed.
type steering struct {
	Action          action
	Reason          string
	WrongReason     string
	RateField       formField
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
	return c.steer(r, "rate",
		func(all *campaigns.Campaigns, ctx context.Context, id string, act campaigns.Act) (campaigns.Campaign, error) {
			rate, wrong := rateOf(strings.TrimSpace(r.PostForm.Get("rate")))
			if wrong != "" { // the form has been checked
				return campaigns.Campaign{}, badInput(wrong)
			}
			return all.SetRate(ctx, id, rate, act)
		})
}

// wrongRate says why the rate of a form cannot be one. It must be there: nothing is not no limit.
func wrongRate(typed string) string {
	if typed == "" {
		return "The rate is missing. 0 is no limit."
	}
	_, wrong := rateOf(typed)
	return wrong
}

// steer does an action, and goes to the campaign.
func (c *Console) steer(r *request, name string,
	do func(*campaigns.Campaigns, context.Context, string, campaigns.Act) (campaigns.Campaign, error)) (answer, error) {
	form, err := r.form()
	if err != nil {
		return answer{}, err
	}
	id := r.values["id"]
	act := campaigns.Act{By: r.person.Name, Reason: strings.TrimSpace(form.Get("reason"))}
	view := steering{
		Action: actionOf(r, name, id), Reason: act.Reason, WrongReason: wrongReason(act.Reason),
		Back: r.link("campaigns/"+id, nil), Again: true,
		RateField: formField{Name: "rate", Label: "Letters a second", Value: strings.TrimSpace(form.Get("rate")),
			Mode: "decimal", Required: true},
	}
	if name == "rate" {
		view.RateField.Wrong = wrongRate(view.RateField.Value)
		view.RateField.First = view.RateField.Wrong != ""
	}
	if view.WrongReason != "" || view.RateField.Wrong != "" {
		if _, err := c.campaigns.Get(r.Context(), id); errors.Is(err, campaigns.ErrNotFound) {
			return answer{}, err
		}
		return answer{status: http.StatusBadRequest, page: "steer", title: view.Action.Label, view: view}, nil
	}
	now, err := do(c.campaigns, r.Context(), id, act)
	switch {
	case err == nil:
		return answer{to: r.link("campaigns/"+now.ID, nil)}, nil
	case errors.Is(err, campaigns.ErrNotFound):
		return answer{}, err
	}
	p := c.problemOf(r, err)
	view.Problem, view.Detail, view.Again = p.text, p.detail, p.status != http.StatusConflict
	if errors.Is(err, campaigns.ErrState) && now.ID != "" {
		view.Problem = joined(say("Nothing was changed. The state of the campaign is now: %s.",
			operate.StateWords(now.State)), c.steeredBy(r, id))
	}
	return answer{status: p.status, page: "steer", title: view.Action.Label, view: view}, nil
}

// steeredBy says who brought a campaign into its state, for the one who came second.
func (c *Console) steeredBy(r *request, id string) string {
	events, err := c.campaigns.History(r.Context(), id, 0)
	if err != nil || len(events) == 0 {
		return ""
	}
	last := events[len(events)-1]
	return say("The last entry of its history: %s, by %s, for this reason: %s.", string(last.Kind),
		c.plain(last.By), c.plain(last.Reason))
}

package console

import (
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
func (c *console) pause(r *request) (answer, error)   { return c.steer(r, "pause") }
func (c *console) resume(r *request) (answer, error)  { return c.steer(r, "resume") }
func (c *console) cancel(r *request) (answer, error)  { return c.steer(r, "cancel") }
func (c *console) approve(r *request) (answer, error) { return c.steer(r, "approve") }
func (c *console) setRate(r *request) (answer, error) { return c.steer(r, "rate") }

// wrongRate says why the rate of a form cannot be one. It must be there: nothing is not no limit.
func wrongRate(typed string) string {
	if typed == "" {
		return "The rate is missing. 0 is no limit."
	}
	_, wrong := rateOf(typed)
	return wrong
}

// steer does an action, and goes to the campaign.
func (c *console) steer(r *request, name string) (answer, error) {
	form, err := r.form()
	if err != nil {
		return answer{}, err
	}
	id := r.http.PathValue("id")
	reason := strings.TrimSpace(form.Get("reason"))
	view := steering{
		Action: actionOf(r, operate.SteeringOf(name), id), Reason: reason, WrongReason: wrongReason(reason),
		Back: r.link("campaigns/"+id, nil), Again: true,
		RateField: formField{Name: "rate", Label: settingLabels["rate"], Value: strings.TrimSpace(form.Get("rate")),
			Mode: "decimal", Required: true},
	}
	if view.Action.Rated {
		view.RateField.Wrong = wrongRate(view.RateField.Value)
		view.RateField.First = view.RateField.Wrong != ""
	}
	if view.WrongReason != "" || view.RateField.Wrong != "" {
		if _, err := c.desk.Campaigns.Get(r.http.Context(), id); errors.Is(err, campaigns.ErrNotFound) {
			return answer{}, err
		}
		return answer{status: http.StatusBadRequest, page: "steer", title: view.Action.Label, view: view}, nil
	}
	rate, _ := rateOf(view.RateField.Value)
	now, err := c.desk.Steer(r.http.Context(), r.who(reason), id, view.Action.Steering, rate)
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
func (c *console) steeredBy(r *request, id string) string {
	events, err := c.desk.Campaigns.Inside().History(r.http.Context(), id, 0)
	if err != nil || len(events) == 0 {
		return ""
	}
	last := events[len(events)-1]
	return say("The last entry of its history: %s, by %s, for this reason: %s.", last.Kind,
		c.plain(last.By), c.plain(last.Reason))
}

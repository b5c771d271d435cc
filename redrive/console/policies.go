package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// policiesView is the standing policies on the page of campaigns.
type policiesView struct {
	Frozen  *inside.Stop
	Rows    []policyRow
	Actions []action
}

type policyRow struct {
	inside.Policy
	State   string
	Blocked []blockedLine
}

type blockedLine struct {
	inside.Stop
	Link string // to the letters of the cause
}

func (c *console) policies(r *request) (v policiesView, err error) {
	all, err := c.desk.Policies(r.http.Context())
	v.Frozen = all.Frozen
	may := func(s operate.Steering, path string) {
		if r.person.Role >= Operate {
			v.Actions = append(v.Actions, action{s, r.link("policies/"+path, nil)})
		}
	}
	if len(all.Policies) > 0 {
		may(freezing(all.Frozen == nil, ""), named(all.Frozen == nil, ""))
	}
	for _, p := range all.Policies {
		row := policyRow{Policy: p, State: "on"}
		for _, stop := range p.Blocked {
			row.State = "blocked"
			row.Blocked = append(row.Blocked, blockedLine{stop, r.link("letters", url.Values{"cause": {stop.Cause}})})
			may(releasing(p.Name, stop.Cause), url.PathEscape(p.Name)+"/"+url.PathEscape(stop.Cause)+"/release")
		}
		if p.Frozen != nil || all.Frozen != nil {
			row.State = "frozen"
		}
		may(freezing(p.Frozen == nil, p.Name), named(p.Frozen == nil, p.Name))
		v.Rows = append(v.Rows, row)
	}
	return v, err
}

func freezing(freeze bool, name string) operate.Steering {
	of := "all policies"
	if name != "" {
		of = "the policy " + name
	}
	if freeze {
		return operate.Steering{Name: "freeze", Label: "Freeze " + of, Danger: name == "",
			Hint: "Their campaigns pause, and no instance starts one. Campaigns that persons started go on."}
	}
	return operate.Steering{Name: "thaw", Label: "Thaw " + of, Hint: "Campaigns that are paused stay so. Resume them one by one."}
}

// named is the path of the route that freezes, or thaws.
func named(freeze bool, name string) string {
	path := map[bool]string{true: "freeze", false: "thaw"}[freeze]
	if name != "" {
		path = url.PathEscape(name) + "/" + path
	}
	return path
}

func releasing(name, cause string) operate.Steering {
	return operate.Steering{Name: "release", Label: "Release " + cause[:min(len(cause), 12)] + " for " + name,
		Hint: "The cause is repaired. The policy takes its letters again, but for those that came back."}
}

// freezes makes the route that freezes a policy, or all of them, or thaws.
func freezes(freeze bool) handler {
	return func(c *console, r *request) (answer, error) {
		name := r.http.PathValue("name")
		act := action{freezing(freeze, name), r.link("policies/"+named(freeze, name), nil)}
		return c.changePolicy(r, act, func(ctx context.Context, who operate.Person) error {
			_, err := c.desk.FreezePolicies(ctx, who, name, freeze)
			return err
		})
	}
}

func (c *console) unblock(r *request) (answer, error) {
	name, cause := r.http.PathValue("name"), r.http.PathValue("cause")
	act := action{releasing(name, cause), r.link("policies/"+url.PathEscape(name)+"/"+url.PathEscape(cause)+"/release", nil)}
	return c.changePolicy(r, act, func(ctx context.Context, who operate.Person) error {
		_, err := c.desk.ReleaseCause(ctx, who, name, cause)
		return err
	})
}

// changePolicy does an action, and goes to the page of campaigns.
func (c *console) changePolicy(r *request, act action, do func(context.Context, operate.Person) error) (answer, error) {
	form, err := r.form()
	if err != nil {
		return answer{}, err
	}
	reason, back := strings.TrimSpace(form.Get("reason")), r.link("campaigns", nil)
	if wrong := wrongReason(reason); wrong != "" {
		view := steering{Action: act, Reason: reason, WrongReason: wrong, Back: back, Again: true}
		return answer{status: http.StatusBadRequest, page: "steer", title: act.Label, view: view}, nil
	}
	switch err := do(r.http.Context(), r.who(reason)); {
	case errors.Is(err, inside.ErrNoPolicy):
		return answer{}, notFound("There is no such policy, or the cause is not blocked for it.")
	case err != nil:
		return answer{}, err
	}
	return answer{to: back}, nil
}

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

// wrongRate says why the rate of a form cannot be one. It must be there: nothing is not no limit.
func wrongRate(typed string) string {
	if typed == "" {
		return "The rate is missing. 0 is no limit."
	}
	_, wrong := rateOf(typed)
	return wrong
}

// steer makes the route that does an action, and goes to the campaign.
func steer(s operate.Steering) handler {
	return func(c *console, r *request) (answer, error) { return c.steer(r, s) }
}

func (c *console) steer(r *request, s operate.Steering) (answer, error) {
	form, err := r.form()
	if err != nil {
		return answer{}, err
	}
	id := r.http.PathValue("id")
	reason := strings.TrimSpace(form.Get("reason"))
	view := steering{
		Action: actionOf(r, s, id), Reason: reason, WrongReason: wrongReason(reason),
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
	events, err := hidden.Of(c.desk.Campaigns).History(r.http.Context(), id, 0)
	if err != nil || len(events) == 0 {
		return ""
	}
	last := events[len(events)-1]
	return say("The last entry of its history: %s, by %s, for this reason: %s.", last.Kind,
		c.plain(last.By), c.plain(last.Reason))
}

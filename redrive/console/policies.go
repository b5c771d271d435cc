package console

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

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
	all, err := c.desk.Policies(r.HTTP.Context())
	v.Frozen = all.Frozen
	may := func(s operate.Steering, path string) {
		if r.Person.Right >= operate.Act {
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
		name := r.HTTP.PathValue("name")
		act := action{freezing(freeze, name), r.link("policies/"+named(freeze, name), nil)}
		return c.perform(r, act, r.link("campaigns", nil), func(who operate.Person, _ float64) error {
			_, err := c.desk.FreezePolicies(r.HTTP.Context(), who, name, freeze)
			return err
		})
	}
}

func (c *console) unblock(r *request) (answer, error) {
	name, cause := r.HTTP.PathValue("name"), r.HTTP.PathValue("cause")
	act := action{releasing(name, cause), r.link("policies/"+url.PathEscape(name)+"/"+url.PathEscape(cause)+"/release", nil)}
	return c.perform(r, act, r.link("campaigns", nil), func(who operate.Person, _ float64) error {
		_, err := c.desk.ReleaseCause(r.HTTP.Context(), who, name, cause)
		return err
	})
}

// steering is the page of an action that was not done: it has the reason, and the form with what was typed.
type steering struct {
	Action          action
	Reason          string
	WrongReason     string
	RateField       formField
	Problem, Detail string
	Back            string
	Again           bool // the form can be sent again
}

// perform carries out an action for which a form has the reason, and goes back. A form that is wrong comes again, with
// what was typed.
func (c *console) perform(r *request, act action, back string, do func(who operate.Person, rate float64) error) (answer, error) {
	form, err := r.form()
	if err != nil {
		return answer{}, err
	}
	v := steering{Action: act, Reason: strings.TrimSpace(form.Get("reason")), Back: back, Again: true}
	v.WrongReason = wrongReason(v.Reason)
	a := answer{status: http.StatusBadRequest, page: "steer", title: act.Label}
	rate := 0.0
	if act.Rated {
		typed := strings.TrimSpace(form.Get("rate"))
		v.RateField = settingOf("rate").field(typed, "")
		v.RateField.Required = true
		if rate, v.RateField.Wrong = rateOf(typed); typed == "" { // nothing is not no limit
			v.RateField.Wrong = "The rate is missing. 0 is no limit."
		}
		v.RateField.First = v.RateField.Wrong != ""
	}
	if v.WrongReason == "" && v.RateField.Wrong == "" {
		err := do(r.who(v.Reason), rate)
		if err == nil {
			return answer{to: back}, nil
		}
		p := c.problemOf(r, err)
		if p.status == http.StatusNotFound {
			return answer{}, err
		}
		a.status, v.Problem, v.Detail, v.Again = p.status, p.text, p.detail, p.status != http.StatusConflict
	}
	a.view = v
	return a, nil
}

// steer makes the route that does something with a campaign.
func steer(s operate.Steering) handler {
	return func(c *console, r *request) (answer, error) {
		id := r.HTTP.PathValue("id")
		return c.perform(r, actionOf(r, s, id), r.link("campaigns/"+id, nil), func(who operate.Person, rate float64) error {
			now, err := c.desk.Steer(r.HTTP.Context(), who, id, s, rate)
			if errors.Is(err, campaigns.ErrState) && now.ID != "" {
				return &fault{status: http.StatusConflict, title: "Nothing was changed", text: say("The state of the campaign "+
					"is now: %s.", operate.StateWords(now.State)), cause: err}
			}
			return err
		})
	}
}

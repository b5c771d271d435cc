package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
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

func (c *console) freeze(r *request) (answer, error) { return c.freezes(r, true) }
func (c *console) thaw(r *request) (answer, error)   { return c.freezes(r, false) }

func (c *console) freezes(r *request, freeze bool) (answer, error) {
	name := r.http.PathValue("name")
	act := action{freezing(freeze, name), r.link("policies/"+named(freeze, name), nil)}
	return c.changePolicy(r, act, func(ctx context.Context, who operate.Person) error {
		_, err := c.desk.FreezePolicies(ctx, who, name, freeze)
		return err
	})
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

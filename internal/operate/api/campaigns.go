package api

import (
	"bytes"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// campaigns lists campaigns, the newest first.
func (h *Handler) campaigns(r *request) (answer, error) {
	n, err := limit(r.Query, mostLimit)
	if err != nil {
		return answer{}, err
	}
	list := campaigns.List{Limit: n}
	for _, typed := range operate.Filled(r.Query["state"]) {
		state := campaigns.State(typed)
		if !slices.Contains(campaigns.States, state) {
			var names []string
			for _, one := range campaigns.States {
				names = append(names, string(one))
			}
			return answer{}, operate.WrongValue("state", typed, "use one of "+strings.Join(names, ", "))
		}
		list.States = append(list.States, state)
	}
	if begin := r.Query.Get("begins"); begin != "" {
		if len(r.Query) > 1 {
			return answer{}, errAlone
		}
		found, err := h.Desk.CampaignsBegin(r.HTTP.Context(), begin)
		return answer{json: h.campaignsData(r, found)}, err
	}
	if last := r.Query.Get("after"); last != "" {
		before, id, _ := strings.Cut(last, " ")
		if list.Before, err = time.Parse(time.RFC3339Nano, before); err != nil {
			return answer{}, operate.WrongValue("after", last, "use next of the page before, or leave it out")
		}
		list.BeforeID = id
	}
	found, err := h.Desk.Campaigns.List(r.HTTP.Context(), list)
	v := h.campaignsData(r, found)
	if len(found) == n {
		v.Next = found[n-1].CreatedAt.Format(time.RFC3339Nano) + " " + found[n-1].ID
	}
	return answer{json: v}, err
}

func (h *Handler) campaignsData(r *request, found []campaigns.Campaign) operate.CampaignsData {
	v := operate.CampaignsData{Campaigns: []operate.CampaignData{}}
	for _, one := range found {
		v.Campaigns = append(v.Campaigns, h.Desk.Shown(r.Person, one))
	}
	return v
}

// campaign sends a campaign and its record.
func (h *Handler) campaign(r *request) (answer, error) {
	one, err := h.Desk.Campaigns.Get(r.HTTP.Context(), r.HTTP.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	v, err := h.Desk.CampaignOf(r.HTTP.Context(), r.Person, one)
	return answer{json: v}, err
}

// steer makes the route of something that a person can do with a campaign.
func steer(s operate.Steering) handler {
	to := func(h *Handler, r *request, reason string, rate float64) (answer, error) {
		now, err := h.Desk.Steer(r.HTTP.Context(), r.who(reason), r.HTTP.PathValue("id"), s, rate)
		return answer{json: h.Desk.Shown(r.Person, now)}, err
	}
	if !s.Rated {
		return posted(func(h *Handler, r *request, body operate.ReasonBody) (answer, error) {
			return to(h, r, body.Reason, 0)
		})
	}
	return posted(func(h *Handler, r *request, body operate.RateBody) (answer, error) {
		if body.Rate == nil {
			return answer{}, invalid("rate", "is missing: give a number of letters per second; 0 is no limit")
		}
		return to(h, r, body.Reason, *body.Rate)
	})
}

// asked reads the campaign of a body.
func asked(body operate.StartBody) (c campaigns.Request, err error) {
	c = body.Plain()
	switch {
	case c.By != "":
		return c, operate.WrongValue("by", c.By, "leave it out: the access function of the server names you")
	case c.ID != "":
		return c, operate.WrongValue("id", c.ID, "leave it out: the Idempotency-Key is the id")
	case body.Filter == nil && len(c.Seqs) == 0:
		return c, nothingChosen()
	case body.Filter != nil:
		c.Filter = *body.Filter
	}
	if wrong := operate.CheckSettings(&c); len(wrong) > 0 {
		return c, several(wrong)
	}
	return c, nil
}

func nothingChosen() error {
	return invalid("filter", "is missing, and so is seqs: give one of them; an empty filter chooses all letters that wait")
}

// several is the problem of several fields.
func several(wrong []*operate.Wrong) error {
	p := &operate.Problem{Status: http.StatusBadRequest, Type: operate.ProblemInvalid, Title: "This cannot be done",
		Detail: wrong[0].Error()}
	for _, one := range wrong {
		p.Errors = append(p.Errors, operate.FieldProblem{Field: underscored(one.Field), Value: one.Value,
			Detail: one.Why,
			Remedy: one.Remedy})
	}
	return p
}

// underscored is the name of a field in a body.
func underscored(field string) string {
	return string(bytes.ReplaceAll([]byte(field), []byte("-"), []byte("_")))
}

// plan says what a campaign would do.
func (h *Handler) plan(r *request, body operate.StartBody) (answer, error) {
	c, err := asked(body)
	if err != nil {
		return answer{}, err
	}
	p, part, err := h.Desk.Plan(r.HTTP.Context(), r.Person, c, h.Planned)
	return answer{json: h.Desk.PlanOf(p, part)}, err
}

// start starts a campaign under the key of the request.
func (h *Handler) start(r *request, body operate.StartBody) (answer, error) {
	c, err := asked(body)
	if err != nil {
		return answer{}, err
	}
	c.ID = r.Person.Key
	begun, late, err := h.Desk.Begin(r.HTTP.Context(), r.who(c.Reason),
		operate.Beginning{Request: c, Seen: body.Seen, Counting: h.Counting})
	return h.begun(r, begun, late, err)
}

// begun is the answer to a request that starts a campaign. A worker goes on with one whose selection broke off.
func (h *Handler) begun(r *request, c campaigns.Campaign, late, err error) (answer, error) {
	switch {
	case errors.Is(err, campaigns.ErrNoLetters):
		return answer{}, &operate.Problem{Status: http.StatusConflict, Type: operate.ProblemNoLetters,
			Title: "No letter can be redriven", Detail: "No letter of the selection can be redriven now.",
			LeftOut: h.Desk.Shown(r.Person, c).LeftOut}
	case err != nil:
		return answer{}, err
	case late != nil:
		h.log(r, late)
	}
	return answer{status: http.StatusCreated, json: h.Desk.Shown(r.Person, c), location: "campaigns/" + c.ID}, nil
}

// edit redrives one letter with changes.
func (h *Handler) edit(r *request, body operate.LetterEditBody) (answer, error) {
	switch {
	case body.Edit == nil:
		return answer{}, invalid("edit", "is missing: say what changes; to redrive the letter as it is, start a campaign")
	case body.Version == "":
		return answer{}, invalid("version", "is missing: take it from the letter, so that what was seen is what is edited")
	}
	l, err := h.one(r)
	if err == nil {
		err = l.Closed
	}
	if err != nil {
		return answer{}, err
	}
	c, late, err := h.Desk.BeginEdited(r.HTTP.Context(), r.who(body.Reason), l.Letter, body.Version,
		campaigns.Request{ID: r.Person.Key, Edit: body.Edit})
	return h.begun(r, c, late, err)
}

// policies lists the standing policies.
func (h *Handler) policies(r *request) (answer, error) {
	all, err := h.Desk.Policies(r.HTTP.Context())
	all.Policies = append([]inside.Policy{}, all.Policies...)
	return answer{json: all}, err
}

// freeze makes the route that freezes a policy, or all, or thaws.
func freeze(frozen bool) handler {
	state := map[bool]string{true: "frozen", false: "thawed"}[frozen]
	return posted(func(h *Handler, r *request, body operate.ReasonBody) (answer, error) {
		name := r.HTTP.PathValue("name") // none stands for all
		changed, err := h.Desk.FreezePolicies(r.HTTP.Context(), r.who(body.Reason), name, frozen)
		return answer{json: operate.PolicyChanged{Policy: name, State: state, Changed: changed}}, err
	})
}

// release lets a policy redrive a cause again.
func (h *Handler) release(r *request, body operate.ReleaseBody) (answer, error) {
	if body.Cause == "" {
		return answer{}, invalid("cause", "is missing: name the cause that is repaired, or its first characters")
	}
	cause, err := h.Desk.ReleaseCause(r.HTTP.Context(), r.who(body.Reason), r.HTTP.PathValue("name"), body.Cause)
	return answer{json: operate.PolicyChanged{Policy: r.HTTP.PathValue("name"), Cause: cause, State: "released",
		Changed: true}}, err
}

// outages lists what the breakers of the instances share, or what this process holds if they share nothing.
func (h *Handler) outages(r *request) (answer, error) {
	all, err := h.Desk.Outages(r.HTTP.Context())
	if errors.Is(err, operate.ErrNoOutages) && h.Breakers != nil {
		if all, err = h.held(); err != nil {
			h.log(r, err)
			return answer{}, &operate.Problem{Status: http.StatusInternalServerError, Type: operate.ProblemFailed,
				Title:  "The breakers are not known",
				Detail: "console.Config.Breakers failed. The log of the service says more."}
		}
	}
	return answer{json: operate.BreakersData{Breakers: append([]circuit.Status{}, h.Desk.Held(all)...)}}, err
}

// hold makes the route that holds the messages of a handler, or ends that.
func hold(hold bool) handler {
	state := map[bool]string{true: "frozen", false: "released"}[hold]
	return posted(func(h *Handler, r *request, body operate.HandlerBody) (answer, error) {
		if body.All == (body.Handler != "") {
			return answer{}, invalid("handler", "is missing, or all is true too: name a handler, or give all, for all handlers")
		}
		changed, err := h.Desk.Hold(r.HTTP.Context(), r.who(body.Reason), body.Handler, hold)
		return answer{json: operate.HandlerChanged{Handler: body.Handler, State: state, Changed: changed}}, err
	})
}

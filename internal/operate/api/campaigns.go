package api

import (
	"bytes"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// campaigns lists campaigns, the newest first.
func (h *Handler) campaigns(r *request) (answer, error) {
	n, err := limit(r.query, mostLimit)
	if err != nil {
		return answer{}, err
	}
	list := campaigns.List{Limit: n}
	for _, typed := range operate.Filled(r.query["state"]) {
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
	if begin := r.query.Get("begins"); begin != "" {
		if len(r.query) > 1 {
			return answer{}, errAlone
		}
		found, err := h.Desk.CampaignsBegin(r.http.Context(), begin)
		return answer{json: h.campaignsData(r, found)}, err
	}
	last, err := place(r.query, "campaigns", 2)
	if err != nil {
		return answer{}, err
	}
	if last != nil {
		if list.Before, err = time.Parse(time.RFC3339Nano, last[0]); err != nil {
			return answer{}, badCursor(r.query.Get("cursor"))
		}
		list.BeforeID = last[1]
	}
	found, err := h.Desk.Campaigns.List(r.http.Context(), list)
	v := h.campaignsData(r, found)
	if len(found) == n {
		v.Next = cursor("campaigns", found[n-1].CreatedAt.Format(time.RFC3339Nano), found[n-1].ID)
	}
	return answer{json: v, next: v.Next}, err
}

func (h *Handler) campaignsData(r *request, found []campaigns.Campaign) operate.CampaignsData {
	v := operate.CampaignsData{Campaigns: []operate.CampaignData{}}
	for _, one := range found {
		v.Campaigns = append(v.Campaigns, h.Desk.Shown(r.person, one))
	}
	return v
}

// campaign sends a campaign and its record.
func (h *Handler) campaign(r *request) (answer, error) {
	one, err := h.Desk.Campaigns.Get(r.http.Context(), r.http.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	v, err := h.Desk.CampaignOf(r.http.Context(), r.person, one)
	return answer{json: v}, err
}

// outcomes says what became of the letters of a campaign.
func (h *Handler) outcomes(r *request) (answer, error) {
	ctx := r.http.Context()
	one, err := h.Desk.Campaigns.Get(ctx, r.http.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	v := operate.OutcomesData{Outcomes: []operate.OutcomeData{}}
	for _, o := range operate.Outcomes(one) {
		v.Outcomes = append(v.Outcomes, operate.OutcomeData{Outcome: o.Name, Means: o.Means, Letters: o.Letters,
			Bad: o.Bad})
	}
	if v.Behind, err = h.Desk.LeftBehind(ctx, one); err != nil || one.FailedAgain == 0 {
		return answer{json: v}, err
	}
	groups, slow, err := h.Desk.CameBack(ctx, one, h.Counting)
	v.Slow = slow
	for _, g := range groups {
		v.CameBack = append(v.CameBack, h.Desk.Cause(g))
	}
	return answer{json: v}, err
}

// steer makes the route of something that a person can do with a campaign.
func steer(s operate.Steering) func(*Handler, *request) (answer, error) {
	return func(h *Handler, r *request) (answer, error) {
		var body operate.RateBody
		var err error
		if s.Rated {
			err = r.read(&body)
		} else {
			err = r.read(&body.ReasonBody)
		}
		if err == nil {
			err = operate.CheckReason(body.Reason)
		}
		if err == nil && s.Rated && body.Rate == nil {
			err = invalid("rate", "is missing: give a number of letters per second; 0 is no limit")
		}
		if err != nil {
			return answer{}, err
		}
		rate := 0.0
		if body.Rate != nil {
			rate = *body.Rate
		}
		now, err := h.Desk.Steer(r.http.Context(), r.who(body.Reason), r.http.PathValue("id"), s, rate)
		return answer{json: h.Desk.Shown(r.person, now)}, err
	}
}

// asked reads the campaign of a body.
func (r *request) asked() (c campaigns.Request, seen *int, err error) {
	var body operate.StartBody
	if err := r.read(&body); err != nil {
		return c, nil, err
	}
	c = body.Plain()
	switch {
	case c.By != "":
		return c, nil, operate.WrongValue("by", c.By, "leave it out: the access function of the server names you")
	case c.ID != "":
		return c, nil, operate.WrongValue("id", c.ID, "leave it out: the Idempotency-Key is the id")
	case body.Filter == nil && len(c.Seqs) == 0:
		return c, nil, nothingChosen()
	case body.Filter != nil:
		c.Filter = *body.Filter
	}
	if wrong := operate.CheckSettings(&c); len(wrong) > 0 {
		return c, nil, several(wrong)
	}
	return c, body.Seen, nil
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
func (h *Handler) plan(r *request) (answer, error) {
	c, _, err := r.asked()
	if err != nil {
		return answer{}, err
	}
	p, part, err := h.Desk.Plan(r.http.Context(), r.person, c, h.Planned)
	return answer{json: h.Desk.PlanOf(p, part)}, err
}

// start starts a campaign under the key of the request.
func (h *Handler) start(r *request) (answer, error) {
	c, seen, err := r.asked()
	if err != nil {
		return answer{}, err
	}
	c.ID = r.person.Key
	begun, late, err := h.Desk.Begin(r.http.Context(), r.who(c.Reason),
		operate.Beginning{Request: c, Seen: seen, Counting: h.Counting})
	return h.begun(r, begun, late, err)
}

// begun is the answer to a request that starts a campaign. A worker goes on with one whose selection broke off.
func (h *Handler) begun(r *request, c campaigns.Campaign, late, err error) (answer, error) {
	switch {
	case errors.Is(err, campaigns.ErrNoLetters):
		return answer{}, &operate.Problem{Status: http.StatusConflict, Type: operate.ProblemNoLetters,
			Title: "No letter can be redriven", Detail: "No letter of the selection can be redriven now.",
			LeftOut: h.Desk.Shown(r.person, c).LeftOut}
	case err != nil:
		return answer{}, err
	case late != nil:
		h.log(r, late)
	}
	return answer{status: http.StatusCreated, json: h.Desk.Shown(r.person, c), location: "campaigns/" + c.ID}, nil
}

// edit redrives one letter with changes.
func (h *Handler) edit(r *request) (answer, error) {
	var body operate.LetterEditBody
	err := r.read(&body)
	if err == nil {
		err = operate.CheckReason(body.Reason)
	}
	switch {
	case err != nil:
		return answer{}, err
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
	c, late, err := h.Desk.BeginEdited(r.http.Context(), r.who(body.Reason), l.Letter, body.Version,
		campaigns.Request{ID: r.person.Key, Edit: body.Edit})
	return h.begun(r, c, late, err)
}

package api

import (
	"bytes"
	"errors"
	"net/http"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

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

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// asked reads the campaign of a body.
func (r *request) asked() (c campaigns.Request, seen *int, err error) {
	var body operate.StartBody
	if err := r.read(&body); err != nil {
		return c, nil, err
	}
	c = body.Request
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
		p.Errors = append(p.Errors, operate.FieldProblem{Field: underscored(one.Field), Value: one.Value, Detail: one.Why,
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
	p, part, err := h.Desk.Plan(r.http.Context(), r.person, c, operate.Planned)
	return answer{json: h.Desk.PlanOf(p, part)}, err
}

// start starts a campaign under the key of the request.
func (h *Handler) start(r *request) (answer, error) {
	c, seen, err := r.asked()
	if err == nil {
		err = operate.CheckReason(c.Reason)
	}
	if err == nil {
		err = h.more(r, operate.Selection{Seqs: c.Seqs, Filter: c.Filter}, seen, c.Max)
	}
	if err != nil {
		return answer{}, err
	}
	return h.begin(r, c)
}

// more returns an error if more letters match than the person saw, and no request of the key was there before.
func (h *Handler) more(r *request, s operate.Selection, seen *int, most int) error {
	if seen == nil || most > 0 && *seen >= most {
		return nil
	}
	if _, err := h.Desk.Campaigns.Get(r.http.Context(), r.person.Key); err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.http.Context(), h.Counting)
	defer cancel()
	if n := h.Desk.Count(ctx, s); n.Known() && n.N() > *seen {
		return conflict(fmt.Sprintf("seen is %d, and %d letters match now. Nothing was changed. Look again.", *seen, n.N()))
	}
	return nil
}

// begin starts a campaign. A worker goes on with one whose start broke off.
func (h *Handler) begin(r *request, c campaigns.Request) (answer, error) {
	c.ID = r.person.Key
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.http.Context()), starting)
	defer cancel()
	started, err := h.Desk.Start(ctx, r.who(c.Reason), c)
	if started.ID != "" && (err == nil || errors.Is(err, campaigns.ErrNoLetters)) {
		if !sameCampaign(&started.Request, &c, r.person.Name) {
			return answer{}, fmt.Errorf("%w: campaign %s", inside.ErrKeyReused, started.ID)
		}
	}
	switch {
	case errors.Is(err, campaigns.ErrNoLetters):
		shown := h.Desk.Shown(r.person, started)
		return answer{}, &operate.Problem{Status: http.StatusConflict, Type: operate.ProblemNoLetters,
			Title: "No letter can be redriven", Detail: "No letter of the selection can be redriven now.", LeftOut: shown.LeftOut}
	case err != nil && started.ID == "":
		return answer{}, err
	case err != nil: // it has begun: workers go on with its selection
		h.log(r, err)
	}
	return answer{status: http.StatusCreated, json: h.Desk.Shown(r.person, started),
		location: "campaigns/" + started.ID}, nil
}

// sameCampaign compares what a request asks for with the campaign that has its key. Defaults that the campaign has are
// not compared.
func sameCampaign(is, asked *campaigns.Request, by string) bool {
	return is.By == by && is.Reason == asked.Reason && is.Rate == asked.Rate && is.Max == asked.Max &&
		is.Canary == asked.Canary && is.To == asked.To && is.FirstStage == asked.FirstStage &&
		is.HandleAgain == asked.HandleAgain && sameJSON(is.Edit, asked.Edit) && sameJSON(is.Filter, asked.Filter) &&
		slices.Equal(is.Seqs, slices.Compact(slices.Sorted(slices.Values(asked.Seqs))))
}

func sameJSON(a, b any) bool {
	one, errA := json.Marshal(a)
	other, errB := json.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(one, other)
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
	c := campaigns.Request{Seqs: []int64{l.Seq}, Edit: body.Edit}
	c.Reason = body.Reason
	if _, err := h.Desk.Campaigns.Get(r.http.Context(), r.person.Key); err != nil { // else it is sent again
		if body.Version != operate.VersionOf(l.Letter) {
			return answer{}, conflict("The letter has changed since you saw it: it is " + operate.StatusWords(l.Status) +
				". Nothing was changed. Look again.")
		}
	}
	c.Filter.Statuses = letters.Statuses()
	return h.begin(r, c)
}

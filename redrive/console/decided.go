package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/operate"
)

// decidedView is what a decision did, what is left of its selection, and what can be restored.
type decidedView struct {
	D               *decision
	By, Reason      string
	At              time.Time
	Done            operate.Number
	Exact           string // the address of the page that counts
	IsLeft          bool   // letters of the selection are as they were
	Left            operate.Number
	Hidden          []field
	Key             string
	GoOn, Undo      string
	CanUndo         bool
	Audit, Letters  string
	UndoReason      string
	WrongReason     string
	Problem, Detail string
}

// UndoButton is what the button says that restores the letters.
func (v decidedView) UndoButton() string { return restores.Button(v.Done) }

// decidedPageOf makes the route of what a decision did.
func decidedPageOf(d *decision) handler {
	return func(c *console, r *request) (answer, error) { return c.decidedPage(r, d, "", problem{}) }
}

func (c *console) decidedPage(r *request, d *decision, typed string, p problem) (answer, error) {
	key := r.HTTP.PathValue("id")
	if !d.Made(key) {
		return answer{}, noPage()
	}
	view := decidedView{
		D: d, Key: key, UndoReason: typed, WrongReason: p.fields["reason"], Problem: p.text, Detail: p.detail,
		GoOn: r.link(d.Name, nil), Undo: r.link(d.path(key)+"/undo", nil),
		Exact: r.exactLink(d.path(key), withoutField(r.Query, fieldExact)),
		Audit: r.link("audit", url.Values{"redrive-id": {key}}), Letters: r.link("letters",
			operate.FilterValues(d.Of(key))),
	}
	a := answer{status: p.status, page: "decided", title: d.DoneTitle}
	if p.status != http.StatusServiceUnavailable {
		events, err := c.desk.Decided(r.HTTP.Context(), key)
		if err != nil {
			return answer{}, err
		}
		if len(events) == 0 {
			return answer{}, notFound(d.unknown)
		}
		view.By, view.Reason, view.At = events[0].By, events[0].Reason, events[0].At
		view.Done = c.numberOf(r, d.Of(key))
		view.CanUndo = d == discards && !view.Done.None()
		if err := c.whatIsLeft(r, &view); err != nil {
			return answer{}, err
		}
	}
	a.view = view
	return a, nil
}

// whatIsLeft looks for letters of the selection in the address that are as they were. Whether there are some is found
// out at once, also if it is not known how many.
func (c *console) whatIsLeft(r *request, view *decidedView) error {
	q := withoutField(r.Query, fieldExact)
	s, err := r.toDecide(view.D, q)
	if err != nil || len(q) == 0 {
		return nil // the address is of the record alone
	}
	ctx, cancel := context.WithTimeout(r.HTTP.Context(), c.patience(r, careful*c.counting))
	defer cancel()
	heads, err := c.desk.Sample(ctx, s, max(1, len(s.Seqs)))
	unknown := errors.Is(err, context.DeadlineExceeded) && r.HTTP.Context().Err() == nil
	if view.IsLeft = unknown || len(heads) > 0; err != nil && !unknown || !view.IsLeft {
		return err
	}
	view.Left = c.chosen(r, s)
	if len(s.Seqs) == 0 && view.Left.Some() {
		s.Number = view.Left.N()
	}
	view.Hidden = hiddenFields(s.Values())
	return nil
}

func withoutField(q url.Values, name string) url.Values {
	rest := merged(q)
	delete(rest, name)
	return rest
}

// undoDiscard lets the letters of a discard wait again: those that nothing has changed since.
func (c *console) undoDiscard(r *request) (answer, error) {
	form, err := r.form()
	if err != nil {
		return answer{}, err
	}
	key, reason := r.HTTP.PathValue("id"), strings.TrimSpace(form.Get("reason"))
	if !discards.Made(key) {
		return answer{}, noPage()
	}
	if wrong := wrongReason(reason); wrong != "" {
		return c.decidedPage(r, discards, reason,
			problem{status: http.StatusBadRequest, fields: map[string]string{"reason": wrong}})
	}
	s := operate.Selection{Filter: discards.Of(key)}
	_, err = c.carry(r, restores, s, "", reason, nil)
	if err != nil && !errors.Is(err, operate.ErrNothing) {
		return c.decidedPage(r, discards, reason, c.problemOf(r, err))
	}
	return answer{to: r.exactLink(discards.path(key), nil)}, nil
}

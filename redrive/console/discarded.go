package console

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// discardedView is what a discard did, and what can be put back.
type discardedView struct {
	By, Reason      string
	At              time.Time
	Discarded       int
	Counted         bool
	Left            int // of the selection, and not yet discarded
	Hidden          []field
	Key             string
	GoOn, Undo      string
	Audit, Letters  string
	UndoReason      string
	Problem, Detail string
}

func (c *Console) discarded(r *request) (answer, error) { return c.discardedPage(r, "", problem{}) }

func (c *Console) discardedPage(r *request, typed string, p problem) (answer, error) {
	key := r.values["id"]
	if !isDiscard(key) {
		return answer{}, notFound(text("error.page"))
	}
	view := discardedView{
		Key: key, UndoReason: typed, Problem: p.text, Detail: p.detail, GoOn: r.link("discard", nil), Undo: r.link("discards/"+key+"/undo", nil),
		Audit: r.link("audit", map[string][]string{"redrive-id": {key}}), Letters: r.link("letters", filterValues(ofDiscard(key))),
	}
	if p.status == http.StatusServiceUnavailable {
		return answer{status: p.status, page: "discarded", title: text("discarded.title"), view: view}, nil
	}
	events, err := c.discardEvents(r, key)
	if err != nil {
		return answer{}, err
	}
	if len(events) == 0 {
		return answer{}, notFound(text("discarded.unknown"))
	}
	view.By, view.Reason, view.At = events[0].By, events[0].Reason, events[0].At
	ctx, cancel := context.WithTimeout(r.Context(), c.counting)
	defer cancel()
	n, err := c.store.Count(ctx, ofDiscard(key))
	if view.Discarded, view.Counted = n, err == nil; err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return answer{}, err
	}
	if s, err := c.toDiscard(r, r.query); err == nil && len(r.query) > 0 {
		if view.Left, _ = c.chosen(r, s); view.Left > 0 {
			if len(s.seqs) == 0 {
				s.number = view.Left
			}
			view.Hidden = hidden(s.values())
		}
	}
	return answer{status: p.status, page: "discarded", title: text("discarded.title"), view: view}, nil
}

// undoDiscard lets the letters of a discard wait again: those that nothing has changed since.
func (c *Console) undoDiscard(r *request) (answer, error) {
	form, err := r.form()
	if err != nil {
		return answer{}, err
	}
	key, reason := r.values["id"], strings.TrimSpace(form.Get("reason"))
	if !isDiscard(key) {
		return answer{}, notFound(text("error.page"))
	}
	if reason == "" || len(reason) > maxName {
		return c.discardedPage(r, reason, problem{status: http.StatusBadRequest, text: text("act.noreason")})
	}
	ctx, cancel := context.WithTimeout(r.Context(), discarding)
	defer cancel()
	_, err = c.store.MarkAll(ctx, ofDiscard(key), letters.StatusWaiting, letters.Act{By: r.person.Name, Reason: reason})
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return c.discardedPage(r, reason, c.problemOf(r, err))
	}
	return answer{to: r.link("discards/"+key, nil)}, nil
}

package console

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

const (
	// discardBegin is what the ids of discards begin with, so that none is the id of a campaign.
	discardBegin = "discard-"
	// discarding is how long one request discards letters, or puts them back. The page says what is left, and goes on.
	discarding = 15 * time.Second
	// discardSample is how many letters the page shows.
	discardSample = 10
)

// mayDiscard are the states of letters that are of no more use if a person says so.
var mayDiscard = []letters.Status{letters.StatusWaiting, letters.StatusRefused, letters.StatusQuarantined}

// discardView is the page between a selection and its end.
type discardView struct {
	Hidden          []field
	Key, Reason     string
	Number          int
	Exact           bool // Number was counted in time
	Held            held
	Sample          []sampleLine
	Problem, Detail string
	Action, Letters string
}

func (c *Console) discardForm(r *request) (answer, error) {
	s, err := c.toDiscard(r, r.query)
	if err != nil {
		return answer{}, err
	}
	return c.discardPage(r, s, discardBegin+watermill.NewUUID(), "", problem{})
}

// toDiscard is a selection with letters that may be discarded.
func (c *Console) toDiscard(r *request, q map[string][]string) (s selection, err error) {
	if s, err = r.selection(q); err != nil || len(s.filter.Statuses) == 0 {
		return s, err
	}
	s.filter.Statuses = slices.DeleteFunc(s.filter.Statuses, func(status letters.Status) bool { return !slices.Contains(mayDiscard, status) })
	if len(s.filter.Statuses) == 0 {
		return s, badInput(text("discard.states"))
	}
	return s, nil
}

// discard marks the letters. Sent twice with the same key, the second finds none of them, and goes to what the first did.
func (c *Console) discard(r *request) (answer, error) {
	form, err := r.form()
	if err != nil {
		return answer{}, err
	}
	s, err := c.toDiscard(r, form)
	if err != nil {
		return answer{}, err
	}
	key, reason := form.Get("key"), strings.TrimSpace(form.Get("reason"))
	act := letters.Act{By: r.person.Name, Reason: reason, RedriveID: key}
	wrong := problem{status: http.StatusBadRequest}
	switch {
	case !isDiscard(key):
		return answer{}, badInput(text("error.form"))
	case reason == "":
		wrong.text = text("act.noreason")
	case len(reason) > maxName:
		wrong.text = text("act.longreason", maxName)
	}
	if wrong.text != "" {
		return c.discardPage(r, s, key, reason, wrong)
	}
	done, err := c.discardEvents(r, key)
	if err != nil {
		return c.discardPage(r, s, key, reason, c.problemOf(r, err))
	}
	if now, exact := c.chosen(r, s); exact && now > s.number && len(done) == 0 {
		s.number = now
		return c.discardPage(r, s, discardBegin+watermill.NewUUID(), reason, problem{status: http.StatusConflict, text: text("discard.more", now)})
	}
	n, err := c.markChosen(r, s, letters.StatusDiscarded, act)
	switch {
	case err != nil && (n == 0 || !errors.Is(err, context.DeadlineExceeded)): // what was done in time is done, and its page goes on
		return c.discardPage(r, s, key, reason, c.problemOf(r, err))
	case n == 0 && len(done) == 0:
		return c.discardPage(r, s, key, reason, problem{status: http.StatusConflict, text: text("discard.none")})
	}
	return answer{to: r.link("discards/"+key, s.values())}, nil
}

// isDiscard reports whether a text is the id of a discard.
func isDiscard(key string) bool {
	rest, ok := strings.CutPrefix(key, discardBegin)
	return ok && len(rest) == 36 && !strings.ContainsFunc(rest, func(r rune) bool { return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'f') })
}

// markChosen marks the letters of a selection for as long as one request may take. It returns how many, also with an error.
func (c *Console) markChosen(r *request, s selection, status letters.Status, act letters.Act) (n int, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), discarding)
	defer cancel()
	if len(s.seqs) == 0 {
		return c.store.MarkAll(ctx, s.filter, status, act)
	}
	for _, seq := range s.seqs {
		one, err := c.store.MarkAll(ctx, oneLetter(seq, s.filter.Statuses), status, act)
		if n += one; err != nil {
			return n, err
		}
	}
	return n, nil
}

func oneLetter(seq int64, statuses []letters.Status) letters.Filter {
	return letters.Filter{After: seq - 1, MaxSeq: seq, Statuses: statuses}
}

// chosen counts the letters of a selection that are there now, if that does not take long.
func (c *Console) chosen(r *request, s selection) (n int, exact bool) {
	ctx, cancel := context.WithTimeout(r.Context(), c.counting)
	defer cancel()
	if len(s.seqs) == 0 {
		n, err := c.store.Count(ctx, s.filter)
		return n, err == nil
	}
	for _, seq := range s.seqs {
		one, err := c.store.Count(ctx, oneLetter(seq, s.filter.Statuses))
		if n += one; err != nil {
			return 0, false
		}
	}
	return n, true
}

// discardPage shows the form with what was typed.
func (c *Console) discardPage(r *request, s selection, key, reason string, p problem) (answer, error) {
	view := discardView{
		Key: key, Reason: reason, Number: s.number, Problem: p.text, Detail: p.detail, Action: r.link("discard", nil), Letters: r.link("letters", s.values()),
	}
	if p.status != http.StatusServiceUnavailable {
		if view.Number, view.Exact = c.chosen(r, s); !view.Exact {
			view.Number = s.number
		}
		var err error
		var heads []letters.Head
		if view.Held, err = c.heldOf(r, s); err == nil {
			heads, err = c.sampleOf(r, s)
		}
		if err != nil {
			if p.status == 0 {
				return answer{}, err
			}
			c.log(r, err)
		}
		for _, h := range heads {
			view.Sample = append(view.Sample, sampleLine{
				Link: r.link("letters/"+id(h.Seq), nil), ID: h.MessageID, Topic: h.Topic, Handler: h.Handler, Description: h.Description, FirstFailed: h.FirstFailedAt,
			})
		}
	}
	if len(s.seqs) == 0 {
		s.number = max(1, view.Number)
	}
	view.Hidden = hidden(s.values())
	return answer{status: p.status, page: "discard", title: text("discard.title"), view: view}, nil
}

// sampleOf are the first letters of a selection.
func (c *Console) sampleOf(r *request, s selection) (heads []letters.Head, err error) {
	if len(s.seqs) == 0 {
		f := s.filter
		f.Limit = discardSample
		return c.store.Heads(r.Context(), f)
	}
	for _, seq := range s.seqs[:min(len(s.seqs), discardSample)] {
		some, err := c.store.Heads(r.Context(), oneLetter(seq, s.filter.Statuses))
		if err != nil {
			return heads, err
		}
		heads = append(heads, some...)
	}
	return heads, nil
}

// discardEvents is what is on record of a discard: the latest event.
func (c *Console) discardEvents(r *request, key string) ([]letters.Event, error) {
	return c.store.Audit(r.Context(), letters.EventFilter{RedriveIDs: []string{key}, NewestFirst: true, Limit: 1})
}

// ofDiscard chooses the letters that a discard has, and that nothing has changed since.
func ofDiscard(key string) letters.Filter {
	return letters.Filter{RedriveIDs: []string{key}, Statuses: []letters.Status{letters.StatusDiscarded}}
}

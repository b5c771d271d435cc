package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/erasure"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// decision is what is on record under an id.
func (h *Handler) decision(r *request, what operate.Decision, id string, complete bool) (answer, error) {
	events, err := h.Desk.Decided(r.HTTP.Context(), id)
	if err != nil {
		return answer{}, err
	}
	if len(events) == 0 {
		return answer{}, missing("No letter was changed by this request.")
	}
	e := h.Desk.Events(r.Person, events)[0]
	v := operate.DecidedData{ID: id, By: e.By, Reason: e.Reason, At: e.At, Complete: complete}
	ctx, cancel := context.WithTimeout(r.HTTP.Context(), h.Counting)
	defer cancel()
	if n := h.Desk.Count(ctx, operate.Selection{Filter: what.Of(id)}); n.Known() {
		count := n.N()
		v.Letters = &count
	}
	return answer{json: v}, nil
}

// decide makes the route that discards letters, or restores them.
func decide(what operate.Decision) handler {
	return posted(func(h *Handler, r *request, body operate.DecideBody) (answer, error) {
		s, err := selectionOf(body, what)
		if err != nil {
			return answer{}, err
		}
		return h.carryOut(r, what, s, body.Reason, body.Seen)
	})
}

// selectionOf is what a body chooses, as far as the decision takes it.
func selectionOf(body operate.DecideBody, what operate.Decision) (s operate.Selection, err error) {
	switch {
	case body.Filter == nil && len(body.Seqs) == 0:
		return s, nothingChosen()
	case body.Filter != nil && len(body.Seqs) > 0:
		return s, invalid("filter", "and seqs are both given: give one of them")
	case len(body.Seqs) > campaigns.MaxSeqs:
		return s, invalid("seqs", "has %d letters: at most %d are possible; use a filter", len(body.Seqs),
			campaigns.MaxSeqs)
	case body.Filter == nil:
		if s, err = operate.SelectionOf(body.Seqs); err != nil {
			return s, err
		}
	default:
		s.Filter = *body.Filter
		if s.Filter.MaxSeq <= 0 {
			return s, invalid("filter.max_seq", "is missing: take it from letters/count, so that no letter is taken that "+
				"arrives later")
		}
		if s.Filter.Limit != 0 || s.Filter.After != 0 || s.Filter.NewestFirst {
			return s, invalid("filter", "has limit, after or newest_first, which are for lists: leave them out")
		}
		if err := s.Filter.Validate(); err != nil {
			return s, invalid("filter", "cannot be: %v", err)
		}
	}
	if len(s.Seqs) == 0 && len(s.Filter.Statuses) == 0 {
		s.Filter.Statuses = []letters.Status{what.From[0]}
	}
	s, some := s.Only(what.From)
	if !some {
		return s, invalid("filter.statuses", "has no state that this takes: use one of %q", what.From)
	}
	return s, nil
}

// carryOut marks the letters of a selection, as long as a step may take, under the key of the request.
func (h *Handler) carryOut(r *request, what operate.Decision, s operate.Selection, reason string, seen *int) (answer,
	error) {
	id := what.Name + "-" + r.Person.Key
	n, cut, err := h.Desk.Carry(r.HTTP.Context(), r.who(reason),
		operate.Deciding{What: what, Selection: s, ID: id, Seen: seen, Step: h.Step, Counting: h.Counting})
	switch {
	case errors.Is(err, operate.ErrNothing):
		return answer{}, &operate.Problem{Status: http.StatusConflict, Type: operate.ProblemNoLetters,
			Title: "No letter can be changed", Detail: "None of these letters is in a state that this takes. Look again."}
	case err != nil && n > 0:
		return answer{}, errors.Join(fmt.Errorf("%d letters were changed before that: send it again with the same key",
			n), err)
	case err != nil:
		return answer{}, err
	}
	return h.decision(r, what, id, !cut)
}

// erase makes the route that erases a person's data as long as a step may take, or says what would be erased.
func erase(dryRun bool) handler {
	return posted(func(h *Handler, r *request, body operate.ErasureBody) (answer, error) {
		if (len(body.IDs) == 0) == (len(body.Metadata) == 0) {
			return answer{}, invalid("ids", "is missing, and so is metadata, or both are given: give one of them")
		}
		ctx, cancel := context.WithTimeout(r.HTTP.Context(), h.Step)
		defer cancel()
		report, complete, err := h.Desk.Erase(ctx, r.who(body.Reason), erasure.Request{IDs: body.IDs,
			Metadata: body.Metadata, RemoveKeys: body.RemoveKeys, ForgetIDs: body.ForgetIDs, DryRun: dryRun})
		return answer{json: operate.ErasedData{ID: operate.ErasureID(r.Person), Complete: complete, Report: report}}, err
	})
}

// sequences lists the keys whose messages wait in order.
func (h *Handler) sequences(r *request) (answer, error) {
	n, err := limit(r.Query, mostLimit)
	if err != nil {
		return answer{}, err
	}
	all, err := h.Desk.Sequences(r.HTTP.Context(), n)
	v := operate.SequencesData{Sequences: []parked.Parked{}, Cut: len(all) == n}
	for _, p := range all {
		v.Sequences = append(v.Sequences, h.Desk.Parked(r.Person, p))
	}
	return answer{json: v}, err
}

// sequence sends the messages of a key that wait.
func (h *Handler) sequence(r *request) (answer, error) {
	seq, err := r.seq()
	if err != nil {
		return answer{}, err
	}
	n, err := limit(r.Query, mostLimit)
	if err != nil {
		return answer{}, err
	}
	first, all, err := h.Desk.Sequence(r.HTTP.Context(), seq, n)
	if err != nil {
		return answer{}, err
	}
	return answer{json: h.Desk.SequenceOf(r.Person, first, all)}, nil
}

// decisions are what a person can decide about the first message of a key.
var decisions = []struct {
	what parked.Decision
	says string
}{
	{parked.Release, "Let the held message run again, in its place."},
	{parked.Skip, "Make a dead letter of the first message, and go on with the next one."},
	{parked.Discard, "Drop the first message, without an effect or a letter, and go on with the next one."},
}

// decideSequence makes the route of a decision about a key.
func decideSequence(what parked.Decision) handler {
	return posted(func(h *Handler, r *request, body operate.SequenceBody) (answer, error) {
		seq, err := r.seq()
		if err != nil {
			return answer{}, err
		}
		if body.All && what != parked.Discard {
			return answer{}, invalid("all", "is true: only discard takes all messages of a key; leave it out")
		}
		n, err := h.Desk.DecideSequence(r.HTTP.Context(), r.who(body.Reason), seq, what, body.All)
		if err != nil {
			return answer{}, err
		}
		return answer{json: operate.SequenceDecided{Seq: seq, Decided: what.String(), Messages: n}}, nil
	})
}

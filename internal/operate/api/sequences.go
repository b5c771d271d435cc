package api

import (
	"errors"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
)

// sequences lists the keys whose messages wait in order.
func (h *Handler) sequences(r *request) (answer, error) {
	n, err := limit(r.query, mostLimit)
	if err != nil {
		return answer{}, err
	}
	all, err := h.Desk.Sequences(r.http.Context(), n)
	v := operate.SequencesData{Sequences: []sequence.Parked{}, Cut: len(all) == n}
	for _, p := range all {
		v.Sequences = append(v.Sequences, h.Desk.Parked(r.person, p))
	}
	return answer{json: v}, err
}

// sequence sends the messages of a key that wait.
func (h *Handler) sequence(r *request) (answer, error) {
	seq, err := r.seq()
	if err != nil {
		return answer{}, err
	}
	n, err := limit(r.query, mostLimit)
	if err != nil {
		return answer{}, err
	}
	first, all, err := h.Desk.Sequence(r.http.Context(), seq, n)
	if err != nil {
		return answer{}, undecided(r, err)
	}
	return answer{json: h.Desk.SequenceOf(r.person, first, all)}, nil
}

// decisions are what a person can decide about the first message of a key.
var decisions = []struct {
	what sequence.Decision
	says string
}{
	{sequence.Release, "Let the held message run again, in its place."},
	{sequence.Skip, "Make a dead letter of the first message, and go on with the next one."},
	{sequence.Discard, "Drop the first message, without an effect or a letter, and go on with the next one."},
}

// decideSequence makes the route of a decision about a key.
func decideSequence(what sequence.Decision) func(*Handler, *request) (answer, error) {
	return func(h *Handler, r *request) (answer, error) {
		seq, err := r.seq()
		if err != nil {
			return answer{}, err
		}
		var body operate.SequenceBody
		if err := r.read(&body); err != nil {
			return answer{}, err
		}
		if body.All && what != sequence.Discard {
			return answer{}, invalid("all", "is true: only discard takes all messages of a key; leave it out")
		}
		n, err := h.Desk.DecideSequence(r.http.Context(), r.who(body.Reason), seq, what, body.All)
		if err != nil {
			return answer{}, undecided(r, err)
		}
		return answer{json: operate.SequenceDecided{Seq: seq, Decided: what.String(), Messages: n}}, nil
	}
}

// undecided is the problem of a decision that was not made.
func undecided(r *request, err error) error {
	operate.Tell(r.http.Context(), err)
	why := operate.Undecided(err)
	switch {
	case errors.Is(err, sequence.ErrNotParked):
		return missing(why)
	case why != "":
		return conflict(why)
	}
	return err
}

package api

import (
	_ "embed"
	"slices"

	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

//go:embed openapi.json
var document []byte

// document sends the OpenAPI document.
func (h *Handler) document(r *request) (answer, error) {
	return answer{json: rawJSON(document)}, nil
}

// rawJSON is JSON that is sent as it is.
type rawJSON []byte

// MarshalJSON returns the JSON.
func (j rawJSON) MarshalJSON() ([]byte, error) { return j, nil }

// service says who answers, and what the person may do.
func (h *Handler) service(r *request) (answer, error) {
	tables, err := h.Desk.Tables(r.HTTP.Context())
	v := operate.ServiceData{Service: hidden.Of(h.Desk.Store).Service(), API: Version, Person: r.Person.Name,
		Right: r.Person.Right.String(), Note: r.Note, Tables: tables}
	for _, status := range letters.Statuses() {
		v.Statuses = append(v.Statuses, string(status))
	}
	v.Kinds = inside.EventKinds
	for _, state := range campaigns.States {
		v.States = append(v.States, string(state))
	}
	return answer{json: v}, err
}

// health counts what there is.
func (h *Handler) health(r *request) (answer, error) {
	ctx := r.HTTP.Context()
	totals, err := hidden.Of(h.Desk.Store).Totals(ctx)
	if err != nil {
		return answer{}, err
	}
	first, err := h.Desk.Store.Heads(ctx, letters.Filter{Limit: 1})
	if err != nil {
		return answer{}, err
	}
	all, err := hidden.Of(h.Desk.Campaigns).Summary(ctx)
	if err != nil {
		return answer{}, err
	}
	held, err := h.held()
	if err != nil {
		h.log(r, err)
	}
	v := operate.HealthData{Letters: map[string]int{}, Campaigns: map[string]int{}, Stopped: all.Stopped,
		Held: len(held)}
	for _, status := range letters.Statuses() {
		v.Letters[string(status)] = totals[status]
	}
	for state, n := range all.States {
		v.Campaigns[string(state)] = n
	}
	if len(first) > 0 {
		v.OldestFailedAt = h.Desk.Head(first[0]).FirstFailedAt
	}
	return answer{json: v}, nil
}

// held asks Breakers, whose panic costs this answer alone.
func (h *Handler) held() (held []circuit.Status, err error) {
	if h.Breakers == nil {
		return held, nil
	}
	err = safecall.Call("console.Config.Breakers", func() error { held = slices.Clone(h.Breakers()); return nil })
	return held, err
}

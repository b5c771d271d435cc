package api

import (
	"context"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/erasure"
)

// erase makes the route that erases a person's data as long as a step may take, or says what would be erased.
func erase(dryRun bool) func(*Handler, *request) (answer, error) {
	return func(h *Handler, r *request) (answer, error) {
		var body operate.ErasureBody
		if err := r.read(&body); err != nil {
			return answer{}, err
		}
		if (len(body.IDs) == 0) == (len(body.Metadata) == 0) {
			return answer{}, invalid("ids", "is missing, and so is metadata, or both are given: give one of them")
		}
		ctx, cancel := context.WithTimeout(r.http.Context(), h.Step)
		defer cancel()
		report, complete, err := h.Desk.Erase(ctx, r.who(body.Reason),
			erasure.Request{IDs: body.IDs, Metadata: body.Metadata,
				RemoveKeys: body.RemoveKeys, ForgetIDs: body.ForgetIDs, DryRun: dryRun})
		return answer{json: operate.ErasedData{ID: operate.ErasureID(r.person), Complete: complete,
			Report: report}}, err
	}
}

// erasure sends what is on record of an erasure.
func (h *Handler) erasure(r *request) (answer, error) {
	v, err := h.Desk.Erasure(r.http.Context(), r.http.PathValue("id"))
	return answer{json: v}, err
}

package api

import (
	"strconv"

	"github.com/watermill-spillway/spillway/internal/operate"
)

// record is which entries of the record a request asks for.
func (r *request) record() (operate.Record, error) {
	of, err := operate.ParseRecord(r.Query, r.Now)
	if err != nil {
		return of, err
	}
	of.Filter.NewestFirst, err = order(r.Query, "newest")
	return of, err
}

// audit lists entries of the record.
func (h *Handler) audit(r *request) (answer, error) {
	of, err := r.record()
	if err != nil {
		return answer{}, err
	}
	if of.Filter.After, err = after(r.Query); err != nil {
		return answer{}, err
	}
	n, err := limit(r.Query, mostLimit)
	if err != nil {
		return answer{}, err
	}
	of.Filter.Limit = n
	events, err := h.Desk.Audit(r.HTTP.Context(), r.Person, of)
	v := eventsOf(events)
	if of.Seq == 0 && len(events) == n {
		v.Next = strconv.FormatInt(events[n-1].Number, 10)
	}
	return answer{json: v}, err
}

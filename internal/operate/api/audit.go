package api

import (
	"strconv"

	"github.com/watermill-spillway/spillway/internal/operate"
)

// record is which entries of the record a request asks for.
func (r *request) record() (operate.Record, error) {
	of, err := operate.ParseRecord(r.query, r.now)
	if err != nil {
		return of, err
	}
	of.Filter.NewestFirst, err = order(r.query, "newest")
	return of, err
}

// audit lists entries of the record.
func (h *Handler) audit(r *request) (answer, error) {
	of, err := r.record()
	if err != nil {
		return answer{}, err
	}
	if of.Filter.After, err = after(r.query); err != nil {
		return answer{}, err
	}
	n, err := limit(r.query, mostLimit)
	if err != nil {
		return answer{}, err
	}
	of.Filter.Limit = n
	events, err := h.Desk.Audit(r.http.Context(), r.person, of)
	v := eventsOf(events)
	if of.Seq == 0 && len(events) == n {
		v.Next = strconv.FormatInt(events[n-1].Number, 10)
	}
	return answer{json: v}, err
}

package api

import (
	"errors"
	"net/http"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

// outages lists what the breakers of the instances share.
func (h *Handler) outages(r *request) (answer, error) {
	all, err := h.Desk.Outages(r.http.Context())
	return answer{json: operate.BreakersData{Breakers: append([]breaker.Status{}, all...)}}, notShared(err)
}

// hold makes the route that holds the messages of a handler, or ends that.
func hold(hold bool) func(*Handler, *request) (answer, error) {
	state := map[bool]string{true: "frozen", false: "released"}[hold]
	return func(h *Handler, r *request) (answer, error) {
		var body operate.HandlerBody
		if err := r.read(&body); err != nil {
			return answer{}, err
		}
		if body.All == (body.Handler != "") {
			return answer{}, invalid("handler", "is missing, or all is true too: name a handler, or give all, for all handlers")
		}
		changed, err := h.Desk.Hold(r.http.Context(), r.who(body.Reason), body.Handler, hold)
		return answer{json: operate.HandlerChanged{Handler: body.Handler, State: state,
			Changed: changed}}, notShared(err)
	}
}

// notShared is the problem of breakers that share nothing.
func notShared(err error) error {
	if errors.Is(err, operate.ErrNoOutages) {
		return &operate.Problem{Status: http.StatusConflict, Type: operate.ProblemNoOutages,
			Title: "Nothing is shared here", Detail: err.Error()}
	}
	return err
}

// breakLeases takes letters away from programs that are gone.
func (h *Handler) breakLeases(r *request) (answer, error) {
	var body operate.LeasesBody
	if err := r.read(&body); err != nil {
		return answer{}, err
	}
	broken, err := h.Desk.BreakLeases(r.http.Context(), r.who(body.Reason), body.Seqs)
	return answer{json: operate.LeasesData{Broken: append([]int64{}, broken...)}}, err
}

package api

import (
	"errors"
	"net/http"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

// policies lists the standing policies.
func (h *Handler) policies(r *request) (answer, error) {
	all, err := h.Desk.Policies(r.http.Context())
	all.Policies = append([]inside.Policy{}, all.Policies...)
	return answer{json: all}, err
}

// policy sends one policy.
func (h *Handler) policy(r *request) (answer, error) {
	all, err := h.Desk.Policies(r.http.Context())
	if err != nil {
		return answer{}, err
	}
	for _, one := range all.Policies {
		if one.Name == r.http.PathValue("name") {
			return answer{json: one}, nil
		}
	}
	return answer{}, noPolicy(inside.ErrNoPolicy)
}

// freeze makes the route that freezes a policy, or all, or thaws.
func freeze(frozen bool) func(*Handler, *request) (answer, error) {
	state := map[bool]string{true: "frozen", false: "thawed"}[frozen]
	return func(h *Handler, r *request) (answer, error) {
		var body operate.ReasonBody
		if err := r.read(&body); err != nil {
			return answer{}, err
		}
		name := r.http.PathValue("name") // none stands for all
		changed, err := h.Desk.FreezePolicies(r.http.Context(), r.who(body.Reason), name, frozen)
		return answer{json: operate.PolicyChanged{Policy: name, State: state, Changed: changed}}, noPolicy(err)
	}
}

// release lets a policy redrive a cause again.
func (h *Handler) release(r *request) (answer, error) {
	var body operate.ReleaseBody
	if err := r.read(&body); err != nil {
		return answer{}, err
	}
	if body.Cause == "" {
		return answer{}, invalid("cause", "is missing: name the cause that is repaired, or its first characters")
	}
	cause, err := h.Desk.ReleaseCause(r.http.Context(), r.who(body.Reason), r.http.PathValue("name"), body.Cause)
	return answer{json: operate.PolicyChanged{Policy: r.http.PathValue("name"), Cause: cause, State: "released",
		Changed: true}}, noPolicy(err)
}

// noPolicy is the problem of a policy that is not there.
func noPolicy(err error) error {
	if errors.Is(err, inside.ErrNoPolicy) {
		return missing("There is no such policy, or the cause is not blocked for it.")
	}
	return err
}

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

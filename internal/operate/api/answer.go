package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/web"
	"github.com/watermill-spillway/spillway/privacy"
)

// answer is what a route gives: JSON, or bytes. Nothing of JSON is sent before all of it is there.
type answer struct {
	status   int // if not 200
	json     any
	location string // within the API
	file     *web.File
}

// send sends an answer. An error means that nothing was sent.
func (h *Handler) send(r *request, a answer) error {
	if a.file != nil {
		a.file.Send(r.Writer, r.HTTP)
		return nil
	}
	body, err := json.Marshal(a.json)
	if err != nil {
		return &unwritable{err}
	}
	header := r.Writer.Header()
	header.Set("Content-Type", "application/json")
	if a.location != "" {
		header.Set("Location", r.root+a.location)
	}
	header.Set("Vary", "Accept-Encoding")
	if r.HTTP.Method == post || !web.Unchanged(r.Writer, r.HTTP, body) {
		web.Send(r.Writer, r.HTTP, max(a.status, http.StatusOK), append(body, '\n'))
	}
	return nil
}

// unwritable is the error of an answer that JSON does not have. The database is not to blame.
type unwritable struct{ error }

func (u *unwritable) Unwrap() error { return u.error }

// problemType is the media type of problem details.
const problemType = "application/problem+json"

// invalid is the problem of a field, or of a whole request.
func invalid(field, format string, args ...any) error {
	return &operate.Wrong{Field: field, Why: fmt.Sprintf(format, args...)}
}

// missing is the problem of something that is not there.
func missing(why string) *operate.Problem {
	return &operate.Problem{Status: http.StatusNotFound, Type: operate.ProblemNotFound, Title: "Not found", Detail: why}
}

// problemOf turns any error into problem details. The texts of errors name servers and users: they are for persons who
// may act.
func (h *Handler) problemOf(r *request, err error) *operate.Problem {
	said := ""
	if r.Person.Right >= operate.Act {
		said = h.Desk.Masks.Text(boundedtext.Error(err, privacy.MaxText))
	}
	if errors.As(err, new(*unwritable)) {
		return &operate.Problem{Status: http.StatusInternalServerError, Type: operate.ProblemFailed,
			Title:  "The answer cannot be written",
			Detail: strings.TrimSpace("It has a value that JSON does not have. The log of the service says more. " + said)}
	}
	if refused := (*web.Refusal)(nil); errors.As(err, &refused) {
		refused.Detail = strings.TrimSpace(refused.Detail + " " + refused.Note)
		if refused.Type == operate.ProblemNoRoute {
			refused.Detail = "There is nothing at this address in version " + Version + ". The document openapi.json has all " +
				"addresses."
		}
		return &refused.Problem
	}
	p, more := web.Explain(err, h.Desk.Masks, h.Front.Timeout())
	if p.Type == operate.ProblemUnavailable {
		p.Detail += " Try again: with the same Idempotency-Key it is done once."
	}
	if more && said != "" && p.Type != operate.ProblemNotFound {
		p.Detail += " The error: " + said
	}
	return p
}

// fail answers with problem details.
func (h *Handler) fail(w http.ResponseWriter, r *request, err error) {
	p := h.problemOf(r, err)
	operate.Tell(r.HTTP.Context(), err)
	// a deadline of the body cancels too
	if errors.Is(r.HTTP.Context().Err(), context.Canceled) && p.Status != http.StatusRequestTimeout {
		return // nothing reads the answer any more
	}
	if p.Status >= http.StatusInternalServerError {
		h.log(r, err)
	}
	if p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	body, err := json.Marshal(p)
	if err != nil {
		h.log(r, err)
	}
	w.Header().Del("ETag")
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(p.Status)
	if r.HTTP.Method != http.MethodHead {
		_, _ = w.Write(append(body, '\n')) // the reader may be gone
	}
}

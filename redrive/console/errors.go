package console

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// retryAfter is when a page that could not be answered is asked for again.
const retryAfter = 5 * time.Second

// fault is an error that has a page of its own.
type fault struct {
	status int
	title  string
	text   string // what happened, and what to do
	detail string // what came with the request, or with the error: shown as hostile text
	cause  error
}

func (f *fault) Error() string {
	if f.cause != nil {
		return f.text + ": " + boundedtext.Error(f.cause, privacy.MaxText)
	}
	return f.text
}

func (f *fault) Unwrap() error { return f.cause }

// badInput is the fault of a request that the person can repair.
func badInput(why string) *fault {
	return &fault{status: http.StatusBadRequest, title: text("error.input"), text: why}
}

// notFound is the fault of an address where nothing is.
func notFound(why string) *fault {
	return &fault{status: http.StatusNotFound, title: text("error.notfound"), text: why}
}

// explain turns any error into a fault. The texts of errors name servers and users: they are for persons who may act.
func (c *Console) explain(r *request, err error) *fault {
	detail := ""
	if r.person.Role >= Operate {
		detail = c.config.Privacy.Text(boundedtext.Error(err, privacy.MaxText))
	}
	f, panicked, tooLarge := (*fault)(nil), (*classify.PanicError)(nil), (*http.MaxBytesError)(nil)
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, letters.ErrNotFound), errors.Is(err, campaigns.ErrNotFound):
		return &fault{status: http.StatusNotFound, title: text("error.notfound"), text: text("error.gone"), detail: detail,
			cause: err}
	case errors.Is(err, campaigns.ErrState), errors.Is(err, letters.ErrLeaseLost):
		return &fault{status: http.StatusConflict, title: text("error.conflict"), text: text("error.conflict.text"),
			detail: detail, cause: err}
	case errors.As(err, &tooLarge):
		return &fault{status: http.StatusRequestEntityTooLarge, title: text("error.large"),
			text: text("error.large.text", tooLarge.Limit)}
	case errors.As(err, &panicked), errors.Is(err, errTemplate):
		return &fault{status: http.StatusInternalServerError, title: text("error.internal"),
			text: text("error.internal.text"), cause: err}
	case errors.Is(err, context.DeadlineExceeded):
		return &fault{status: http.StatusServiceUnavailable, title: text("error.slow"),
			text: text("error.slow.text", int(c.config.Timeout.Seconds())), cause: err}
	}
	return &fault{status: http.StatusServiceUnavailable, title: text("error.database"), text: text("error.database.text"),
		detail: detail, cause: err}
}

// failure is what the page of an error shows.
type failure struct {
	Text, Detail string
	Retries      bool // the page loads itself again
	Unsure       bool // it is not known whether the request was done
	Home         string
}

// fail answers with the page of an error. If that page fails too, a line of text is sent.
func (c *Console) fail(w http.ResponseWriter, r *request, err error) {
	f := c.explain(r, err)
	// a deadline of the body cancels too
	if errors.Is(r.Context().Err(), context.Canceled) && f.status != http.StatusRequestTimeout {
		return // nothing reads the answer any more
	}
	if f.status >= http.StatusInternalServerError {
		c.log(r, err)
	}
	safe := r.Method == http.MethodGet || r.Method == http.MethodHead
	if f.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	view := failure{Text: f.text, Detail: f.detail, Home: r.base,
		Retries: safe && f.status == http.StatusServiceUnavailable}
	view.Unsure = !safe && f.status >= http.StatusInternalServerError
	a := answer{status: f.status, page: "error", title: f.title, view: view}
	if view.Retries {
		a.refresh = retryAfter
	}
	if sendErr := c.send(w, r, a); sendErr != nil {
		c.log(r, sendErr)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(f.status)
		_, _ = io.WriteString(w, text("error.plain")+"\n")
	}
}

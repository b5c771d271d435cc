package console

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/web"
	"github.com/watermill-spillway/spillway/privacy"
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
	return &fault{status: http.StatusBadRequest, title: "This cannot be done", text: why}
}

// notFound is the fault of an address where nothing is.
func notFound(why string) *fault {
	return &fault{status: http.StatusNotFound, title: "Not found", text: why}
}

// noPage is the fault of an address that no route has.
func noPage() *fault { return notFound("There is no page at this address.") }

// badForm is the fault of a form that no page of the console sent.
func badForm() *fault { return badInput("The form cannot be read. Send it again.") }

// What several pages say.
const (
	moreMatch = "%s letter matches now, more than you saw. Look again.|%s letters match now, more than you saw. Look " +
		"again."
	fieldsWrong = "Nothing was started. %s field is to be corrected: it says what is wrong.|Nothing was started. %s " +
		"fields are to be corrected: they say what is wrong."
	settingsWrong = "The settings must be corrected first."
	notCounted    = "The address does not say which letters were counted. Go back to the list, and choose again."
	badEdit       = "The edit cannot be: %s"
	noNumber      = "%q is no number from 0 on. Write it as 1500, 1,500 or 1.5."
	payloadErased = "The payload and the metadata of this letter were erased."
	sentBefore    = "This form was sent before, with another reason or name. Nothing was changed. To do it again, send it again."
	reasonHint    = "INC-7: the customers are imported"
)

// explain turns any error into a fault. The texts of errors name servers and users: they are for persons who may act.
func (c *console) explain(r *request, err error) *fault {
	detail := ""
	if r.Person.Right >= operate.Act {
		detail = c.desk.Masks.Text(boundedtext.Error(err, privacy.MaxText))
	}
	f, refused := (*fault)(nil), (*web.Refusal)(nil)
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &refused):
		if refused.Status == http.StatusNotFound {
			return noPage()
		}
		return &fault{status: refused.Status, title: refused.Title, text: refused.Detail, detail: refused.Note}
	case errors.As(err, new(*operate.Problem)):
	case errors.As(err, new(*classify.PanicError)), errors.Is(err, errTemplate):
		return &fault{status: http.StatusInternalServerError, title: "The page failed",
			text: "This is a fault of the console. The log of the service says more.", cause: err}
	}
	p, more := web.Explain(err, c.desk.Masks, c.timeout)
	if !more {
		detail = ""
	}
	return &fault{status: p.Status, title: p.Title, text: p.Detail, detail: detail, cause: err}
}

// failure is what the page of an error shows.
type failure struct {
	Text, Detail string
	Retries      bool // the page loads itself again
	Unsure       bool // it is not known whether the request was done
	Home         string
}

// fail answers with the page of an error. If that page fails too, a line of text is sent.
func (c *console) fail(w http.ResponseWriter, r *request, err error) {
	f := c.explain(r, err)
	// a deadline of the body cancels too
	if errors.Is(r.HTTP.Context().Err(), context.Canceled) && f.status != http.StatusRequestTimeout {
		return // nothing reads the answer any more
	}
	if f.status >= http.StatusInternalServerError {
		c.log(r, err)
	}
	safe := r.HTTP.Method == http.MethodGet || r.HTTP.Method == http.MethodHead
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
		_, _ = io.WriteString(w, "The page failed. The log of the service says more."+"\n")
	}
}

// problem is why a form is shown again, with what was typed.
type problem struct {
	status       int
	text, detail string
	leftOut      []leftOutLine
	fields       map[string]string // what is wrong with fields, by their names
}

// problemOf says why an action failed. Forms can be sent again: their actions happen once.
func (c *console) problemOf(r *request, err error) problem {
	f := c.explain(r, err)
	p := problem{status: f.status, text: f.title + ". " + f.text, detail: f.detail}
	if f.status >= http.StatusInternalServerError {
		c.log(r, err)
		if r.HTTP.Method == http.MethodPost {
			p.text += " " + "What you typed is below. You can send it again: it is done once."
		}
	}
	return p
}

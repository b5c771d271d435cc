package apiclient

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"

	"github.com/watermill-spillway/spillway/internal/order/parked"
)

// ErrChanged is the error of something that happened meanwhile.
var ErrChanged = errors.New("something has changed meanwhile")

// Refusal is what a server says if it does not do something.
type Refusal struct {
	operate.Problem
	says string
}

func (r *Refusal) Error() string { return r.says }

// Is lets a refusal stand for the error that a database gives.
func (r *Refusal) Is(target error) bool {
	switch target {
	case letters.ErrNotFound, campaigns.ErrNotFound, parked.ErrNotParked, inside.ErrNoPolicy,
		inside.ErrNoCause:
		return r.Type == operate.ProblemNotFound
	case operate.ErrNoOutages:
		return r.Type == operate.ProblemNoOutages
	case campaigns.ErrNoLetters:
		return r.Type == operate.ProblemNoLetters
	case ErrChanged, campaigns.ErrState:
		return r.Type == operate.ProblemChanged
	case campaigns.ErrRequest:
		return r.Type == operate.ProblemInvalid
	}
	return false
}

// Unwrap returns the error of a field that is wrong.
func (r *Refusal) Unwrap() error {
	if r.Type != operate.ProblemInvalid || len(r.Errors) == 0 {
		return nil
	}
	e := r.Errors[0]
	return &operate.Wrong{Field: strings.ReplaceAll(e.Field, "_", "-"), Why: e.Detail, Value: e.Value, Remedy: e.Remedy}
}

// lasting is an error that another attempt would meet too.
type lasting struct{ error }

func (l lasting) Unwrap() error { return l.error }

// Lasts is an error that another attempt would meet too.
func Lasts(err error) error { return lasting{err} }

// Lasting reports whether another attempt would meet the error too.
func Lasting(err error) bool {
	var r *Refusal
	switch {
	case errors.As(err, &r):
		return r.Status < http.StatusInternalServerError && r.Status != http.StatusTooManyRequests
	case errors.As(err, new(lasting)), errors.Is(err, ErrConfig):
		return true
	}
	return false
}

// refusal is the error of an answer that is none.
func (c *Client) refusal(response *http.Response, a asking, token bool, kind string, body []byte) error {
	r := &Refusal{}
	if kind != "application/problem+json" || json.Unmarshal(body, &r.Problem) != nil {
		r.Problem = operate.Problem{} // of a proxy, or of another program
	}
	r.Status = response.StatusCode
	said := cmp.Or(strings.TrimSpace(r.Detail), strings.TrimSpace(r.Title), http.StatusText(r.Status), "no reason")
	switch {
	case r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden && !token:
		how := "get a new one, and write it into " + c.config.TokenFile
		if !token {
			how = "no token was sent: name the file of yours with " + c.config.Names.TokenFile
		}
		r.says = fmt.Sprintf("the API at %s does not know you: %s: %s", c.at.Host, strings.TrimRight(said, "."), how)
	case r.Status == http.StatusForbidden && len(a.path) == 0:
		r.says = fmt.Sprintf("the API at %s gives no right for the token of %s: it is wrong, or has expired: %s",
			c.at.Host,
			c.config.TokenFile, said)
	case r.Type == "" && r.Status == http.StatusForbidden:
		r.says = fmt.Sprintf("%s does not let you in: %s", c.at.Host, said)
	case r.Type == operate.ProblemNoField && len(r.Errors) > 0:
		r.says = fmt.Sprintf("the API at %s does not take %s: %s", c.at.Host, r.Errors[0].Field, c.versions())
	case r.Status == http.StatusMethodNotAllowed, r.Type == operate.ProblemNoRoute, r.Status == http.StatusNotFound &&
		(!a.item || r.Type == ""):
		r.Type = ""
		r.says = c.missing(a).Error()
	case r.Type == "" && r.Status >= http.StatusInternalServerError:
		r.says = fmt.Sprintf("the API at %s does not answer: status %d, %s", c.at.Host, r.Status, said)
	case r.Type == "":
		r.says = fmt.Sprintf("the API at %s refuses: status %d, %s", c.at.Host, r.Status, said)
	default:
		r.says = said
	}
	return r
}

// missing is the error of a route that the server does not have.
func (c *Client) missing(a asking) error {
	if c.server == "" {
		return c.noAPI("")
	}
	return fmt.Errorf("the API at %s has no %s: %s", c.at.Host, strings.Join(a.path, "/"), c.versions())
}

// versions says which release does not know what the other one has.
func (c *Client) versions() string {
	return fmt.Sprintf("it is API %s, and this is %s; use that of the server's release, or --db",
		c.server,
		c.config.Program)
}

// noAPI is the error of an address where something else answers.
func (c *Client) noAPI(kind string) error {
	if kind != "" {
		kind = ", but " + kind
	}
	return lasting{fmt.Errorf("there is no API of a console at %s%s: %s must lead to where the service mounts its console, "+
		"of a Spillway with api/v1 (this is %s)", c.at.Redacted(), kind, c.config.Names.URL, c.config.Program)}
}

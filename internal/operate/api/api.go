// Package api is the JSON API of redrive/console: what its pages do, for programs. It stands on package operate, as the
// pages do, so both have the same rights, masks, reasons and record.
//
// # How a route is added
//
//  1. A method of Handler in the file of its noun, such as letters.go. It takes the request and returns an answer. An
//     error goes to the caller: problemOf makes problem details of it.
//  2. A row in the table of routes.go, with the right, the fields of its query, its body and what it answers. TestRights
//     wants a row too.
//  3. go test ./internal/operate/api -run TestDocument -update writes openapi.json, which says the same to programs.
//
// Within v1 a route, a field and a value stay. New ones may come: see docs/api.md.
package api

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/web"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
)

const (
	// Version is the version of the API. The number behind the point grows when something is added.
	Version = "1.0"
	// Prefix is where the API is within the console.
	Prefix = "/api/v1"
)

// Handler answers programs. It is safe for concurrent use. It keeps nothing between requests.
type Handler struct {
	Desk *operate.Desk
	// Front is what the pages ask too.
	Front *web.Front
	// Breakers returns the handlers whose messages are held. Default: none are known.
	Breakers func() []circuit.Status
	Logger   watermill.LoggerAdapter
	Counting time.Duration // of the number of letters of a decision
	Step     time.Duration // of one request that discards letters, or restores them
	Planned  int           // letters that a plan looks at, or 0 for all

	serve http.Handler
}

// New returns a Handler that has its routes.
func New(with Handler) *Handler {
	h := &with
	table := Table()
	routes := make([]web.Route, len(table))
	for i := range table {
		of := &table[i]
		routes[i] = of.Route
		routes[i].Answer = func(c *web.Call) (func() error, error) {
			r := requestOf(c)
			a, err := h.answer(r, of)
			return func() error { return h.send(r, a) }, err
		}
	}
	h.serve = h.Front.Handler(Prefix, routes, func(c *web.Call, err error) { h.fail(c.Writer, requestOf(c), err) })
	return h
}

// Local returns the API for one person in the same process, who may do all and waits as long as it takes.
func Local(desk *operate.Desk, name string) *Handler {
	const ever = 365 * 24 * time.Hour
	return New(Handler{Desk: desk, Logger: watermill.NopLogger{}, Counting: ever, Step: ever, Front: &web.Front{
		Who: func(*http.Request) (operate.Person, string, error) {
			return operate.Person{Name: name, Right: operate.Approve}, "", nil
		},
		Origin:  func(*http.Request) error { return nil },
		Await:   func(http.ResponseWriter, *http.Request) func() { return func() {} },
		Now:     time.Now,
		Timeout: func() time.Duration { return ever }}})
}

// request is a request on its way.
type request struct {
	*web.Call
	root string // leads from the address to the root of the API
}

// who is the person with a reason.
func (r *request) who(reason string) operate.Person {
	who := r.Person
	who.Reason = reason
	return who
}

func requestOf(c *web.Call) *request {
	return &request{c, rootOf(strings.TrimPrefix(c.HTTP.URL.EscapedPath(), Prefix))}
}

// ServeHTTP answers a request, whose path begins with Prefix.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.serve.ServeHTTP(w, r) }

// rootOf leads from a path within the API to its root.
func rootOf(path string) string {
	if path == "" {
		return Prefix[strings.LastIndex(Prefix, "/")+1:] + "/"
	}
	return "./" + strings.Repeat("../", max(0, strings.Count(path, "/")-1))
}

// answer calls the route.
func (h *Handler) answer(r *request, of *Route) (a answer, err error) {
	for name, values := range r.Query {
		switch {
		case len(values) > 1 && !slices.Contains(Lists, name):
			return a, invalid(name, "is there %d times: give it once", len(values))
		case slices.Contains(Flags, name) && values[0] != "1" && values[0] != "true":
			return a, operate.WrongValue(name, values[0], "use 1, or leave it out")
		}
	}
	if of.Keyed {
		if r.Person.Key, err = keyOf(r.HTTP.Header); err != nil {
			return a, err
		}
	}
	return of.handle(h, r)
}

// log writes a line about an error that the server answers for.
func (h *Handler) log(r *request, err error) {
	page := strings.TrimSpace("api " + r.Route)
	logging.ConsoleFailed.Write(h.Logger, err, logging.Fields{"page": page, "method": r.HTTP.Method})
}

package api

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
	"github.com/watermill-spillway/spillway/middleware/breaker"
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
	// The person of a request, without a reason, and a note about the person.
	Who func(*http.Request) (who operate.Person, note string, err error)
	// Origin returns an error for a request that a page of another site sends.
	Origin func(*http.Request) error
	// Breakers returns the handlers whose messages are held. Default: none are known.
	Breakers func() []breaker.Status
	// Await bounds the time in which a body arrives. The returned function is called when all of it was read.
	Await    func(http.ResponseWriter, *http.Request) (arrived func())
	Logger   watermill.LoggerAdapter
	Now      func() time.Time
	Timeout  time.Duration // of one request, with all its queries
	Counting time.Duration // of the number of letters of a decision
	Step     time.Duration // of one request that discards letters, or restores them

	streams chan struct{} // a place for each stream
	table   []route
}

// New returns a Handler that has its routes.
func New(h Handler) *Handler {
	h.table, h.streams = routes(), make(chan struct{}, mostStreams)
	return &h
}

// request is a request on its way.
type request struct {
	http    *http.Request
	writer  http.ResponseWriter
	query   url.Values
	values  map[string]string // of the path
	route   *route
	person  operate.Person
	note    string
	now     time.Time
	root    string // leads from the address to the root of the API
	arrived func()
}

// who is the person with a reason.
func (r *request) who(reason string) operate.Person {
	who := r.person
	who.Reason = reason
	return who
}

const (
	maxQuery = 64 << 10 // bytes
	maxBody  = 64 << 10 // bytes, of a route that names no other
)

// ServeHTTP answers a request, whose path begins with Prefix.
func (h *Handler) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	path, ok := strings.CutPrefix(hr.URL.EscapedPath(), Prefix)
	r := &request{http: hr, writer: w, now: h.Now(), root: rootOf(path)}
	var allowed []string
	if ok && (path == "" || path[0] == '/') {
		r.route, r.values, allowed = h.match(hr.Method, path)
	}
	r.arrived = h.Await(w, hr)
	timeout := h.Timeout
	if r.route != nil && r.route.within > 0 {
		timeout = r.route.within
	}
	ctx, cancel := context.WithTimeout(hr.Context(), timeout)
	defer cancel()
	r.http = hr.WithContext(ctx)
	var a answer
	err := safecall.Call("console api", func() (err error) { a, err = h.answer(r, allowed); return err })
	if err == nil {
		err = h.send(r, a)
	}
	if err != nil {
		h.fail(w, r, err)
	}
}

// rootOf leads from a path within the API to its root.
func rootOf(path string) string {
	if path == "" {
		return Prefix[strings.LastIndex(Prefix, "/")+1:] + "/"
	}
	return "./" + strings.Repeat("../", max(0, strings.Count(path, "/")-1))
}

// answer checks what the person may do, and calls the route.
func (h *Handler) answer(r *request, allowed []string) (a answer, err error) {
	if r.route != nil && r.route.right == operate.Nothing {
		return r.route.handle(h, r)
	}
	if r.person, r.note, err = h.Who(r.http); err != nil {
		return a, err
	}
	switch {
	case r.person.Right == operate.Nothing:
		return a, &operate.Forbidden{Why: strings.TrimSpace("You may not see the dead letters of this service. " +
			r.note)}
	case len(allowed) > 0:
		methods := strings.Join(allowed, ", ")
		r.writer.Header().Set("Allow", methods)
		return a, &operate.Problem{Status: http.StatusMethodNotAllowed, Type: operate.ProblemMethod,
			Title: "Not possible here", Detail: "The method is " + boundedtext.Text(r.http.Method, 20) +
				": this address takes " +
				methods + "."}
	case r.route == nil:
		return a, &operate.Problem{Status: http.StatusNotFound, Type: operate.ProblemNoRoute, Title: "Not found",
			Detail: "There is nothing at this address in version " + Version +
				". The document openapi.json has all addresses."}
	}
	if err := h.Origin(r.http); err != nil {
		return a, &operate.Problem{Status: http.StatusForbidden, Type: operate.ProblemCrossSite,
			Title: "The request came from another site",
			Detail: "Nothing was changed. If this is your console behind a proxy " +
				"that changes the Host header, add the origin to console.Config.TrustedOrigins."}
	}
	if r.person.Right < r.route.right {
		return a, &operate.Forbidden{Why: strings.TrimSpace("This needs the right to " + r.route.right.String() +
			". You have the right to " + r.person.Right.String() + ". " + r.note)}
	}
	if err := r.readQuery(); err != nil {
		return a, err
	}
	if r.route.keyed {
		if r.person.Key, err = keyOf(r.http.Header); err != nil {
			return a, err
		}
	}
	return r.route.handle(h, r)
}

// readQuery reads the query. A field that the route does not have is an error: a filter that is misspelt chooses all.
func (r *request) readQuery() (err error) {
	if n := len(r.http.URL.RawQuery); n > maxQuery {
		return invalid("", "The query of the address has %d bytes, and may have %d.", n, maxQuery)
	}
	if r.query, err = url.ParseQuery(r.http.URL.RawQuery); err != nil {
		return invalid("", "The address is damaged: its query cannot be read.")
	}
	for name, values := range r.query {
		switch {
		case !r.route.takes(name):
			return noField(name, "is no field of this address: correct its name, or leave it out")
		case len(values) > 1 && !slices.Contains(lists, name):
			return invalid(name, "is there %d times: give it once", len(values))
		case slices.Contains(flags, name) && values[0] != "1" && values[0] != "true":
			return operate.WrongValue(name, values[0], "use 1, or leave it out")
		}
	}
	return nil
}

// log writes a line about an error that the server answers for.
func (h *Handler) log(r *request, err error) {
	page := "api"
	if r.route != nil {
		page = "api " + r.route.name
	}
	logging.ConsoleFailed.Write(h.Logger, err, logging.Fields{"page": page, "method": r.http.Method})
}

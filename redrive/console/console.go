package console

import (
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/api"
	"github.com/watermill-spillway/spillway/internal/operate/web"
	"github.com/watermill-spillway/spillway/privacy"
)

// console is an http.Handler that shows the dead letters of a service in a browser, and lets people redrive them. It is
// safe for concurrent use. It starts no goroutines and keeps nothing in memory between requests.
type console struct {
	config   Config
	desk     *operate.Desk
	routes   []route
	pages    map[string]*template.Template
	origins  *http.CrossOriginProtection
	now      func() time.Time
	timeout  time.Duration // that one request may take, with all its queries
	counting time.Duration // how long a page waits for the number of the letters that it lists
	step     time.Duration // how long one request discards letters, or restores them
	serve    http.Handler  // of the pages and the API
	service  string        // whose letters they are
	inFleet  bool          // two levels below the page of a fleet
}

// New returns a handler that shows the dead letters of a service, safe for concurrent use. It starts no goroutines but
// for Decode and Encode, and keeps nothing in memory between requests. It makes no table, and asks the database nothing.
func New(config Config) (http.Handler, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	config.setDefaults()
	store := hidden.Of(config.Campaigns).Store()
	c := &console{
		config: config, routes: routes(), service: hidden.Of(store).Service(),
		desk: &operate.Desk{Store: store, Campaigns: config.Campaigns, Masks: config.Privacy,
			Codec: operate.NewCodec("console.Config.Decode", config.Decode, config.Encode, config.Logger)},
		origins: http.NewCrossOriginProtection(), now: time.Now, timeout: usualTimeout,
		counting: 200 * time.Millisecond, step: stepTime,
	}
	for _, origin := range config.TrustedOrigins {
		if err := c.origins.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("console: Config.TrustedOrigins has %q: an origin is a scheme and a host, such as "+
				"https://ops.example.com: %w", origin, err)
		}
	}
	var err error
	if c.pages, err = c.parse(); err != nil {
		return nil, fmt.Errorf("console: New: %w", err)
	}
	programs, pages := api.New(api.Handler{Desk: c.desk, Front: c.front(), Breakers: config.Breakers, Logger: config.Logger,
		Counting: careful * c.counting, Step: c.step, Planned: operate.Planned}), c.handler()
	c.serve = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.EscapedPath(), "/api/") {
			programs.ServeHTTP(w, r)
			return
		}
		pages.ServeHTTP(w, r)
	})
	return c, nil
}

// request is a request on its way through the console.
type request struct {
	*web.Call
	path    string            // within the console
	base    string            // leads from the page to the root of the console, as in ../
	fields  []string          // that its forms may send
	privacy *privacy.Redactor // of the console
}

// front is what pages and API ask.
func (c *console) front() *web.Front {
	return &web.Front{Who: c.operator, Origin: func(r *http.Request) error { return c.origins.Check(r) }, Await: c.awaitBody,
		Now: func() time.Time { return c.now() }, Timeout: func() time.Duration { return c.timeout }}
}

// handler answers requests for pages.
func (c *console) handler() http.Handler {
	routes := make([]web.Route, len(c.routes))
	for i := range c.routes {
		of := &c.routes[i]
		routes[i] = of.Route
		routes[i].Answer = func(call *web.Call) (func() error, error) {
			r := c.requestOf(call)
			r.fields = of.form
			a, err := of.handle(c, r)
			return func() error { return c.send(call.Writer, r, a) }, err
		}
	}
	return c.front().Handler("", routes, func(call *web.Call, err error) { c.fail(call.Writer, c.requestOf(call), err) })
}

func (c *console) requestOf(call *web.Call) *request {
	path := call.HTTP.URL.EscapedPath()
	return &request{Call: call, path: path, base: baseOf(path), privacy: c.desk.Masks}
}

// ServeHTTP answers a request.
func (c *console) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	protect(w.Header())
	path := hr.URL.EscapedPath()
	if path == "" { // so that links lead somewhere, the address of the root ends with a slash
		redirect(w, http.StatusTemporaryRedirect, "./"+lastPart(hr)+"/")
		return
	}
	c.serve.ServeHTTP(w, hr)
}

// lastPart is the last part of the path that a browser sees.
func lastPart(hr *http.Request) string {
	seen := hr.URL.EscapedPath()
	if u, err := url.ParseRequestURI(hr.RequestURI); err == nil {
		seen = u.EscapedPath()
	}
	return seen[strings.LastIndex(seen, "/")+1:]
}

// baseOf leads from a path to the root.
func baseOf(path string) string {
	if depth := strings.Count(path, "/") - 1; depth > 0 {
		return strings.Repeat("../", depth)
	}
	return "./"
}

// form returns the fields of a form that was sent. One that no form of the route has is an error.
func (r *request) form() (url.Values, error) {
	err := r.HTTP.ParseForm()
	if errors.As(err, new(*http.MaxBytesError)) || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, err
	}
	if err != nil || r.HTTP.PostForm == nil {
		return nil, badForm()
	}
	r.Arrived()
	if name, found := unknown(r.HTTP.PostForm, r.fields); found {
		return nil, badInput(say("The form has a field %q, which this page does not have. Nothing was changed. Correct "+
			"its name, or leave it out.", boundedtext.Text(name, 100)))
	}
	return r.HTTP.PostForm, nil
}

// link returns the address of a page of the console, relative to the page that is answered.
func (r *request) link(path string, query url.Values) string {
	link := r.base + strings.TrimPrefix(path, "/")
	if encoded := query.Encode(); encoded != "" {
		link += "?" + encoded
	}
	return link
}

// can reports whether the person may use a route of that name, and whether there is one.
func (c *console) can(who operate.Person, name string) bool {
	return slices.ContainsFunc(c.routes, func(r route) bool { return r.Name == name && who.Right >= r.Right })
}

// log writes a line about an error that the server answers for.
func (c *console) log(r *request, err error) {
	logging.ConsoleFailed.Write(c.config.Logger, err, logging.Fields{"page": r.Route, "method": r.HTTP.Method})
}

package console

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/internal/api"
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
	api      *api.Handler
	service  string // whose letters they are
	inFleet  bool   // two levels below the page of a fleet
}

// New returns a handler that shows the dead letters of a service, safe for concurrent use. It starts no goroutines, and
// keeps nothing in memory between requests. It makes no table, and asks the database nothing.
func New(config Config) (http.Handler, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	config.setDefaults()
	c := &console{
		config: config, routes: routes(), service: config.Campaigns.Inside().Store().Inside().Service(),
		desk:    &operate.Desk{Store: config.Campaigns.Inside().Store(), Campaigns: config.Campaigns, Masks: config.Privacy},
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
	c.api = api.New(api.Handler{Desk: c.desk, Who: c.operator, Origin: c.origins.Check, Breakers: config.Breakers,
		Await: c.awaitBody, Logger: config.Logger, Now: c.now, Timeout: c.timeout, Counting: careful * c.counting, Step: c.step})
	return c, nil
}

// request is a request on its way through the console.
type request struct {
	http   *http.Request
	path   string     // within the console
	base   string     // leads from the page to the root of the console, as in ../
	query  url.Values // of the URL
	values map[string]string
	route  *route
	person Person
	note   string // what the page says about the person's access
	now    time.Time

	privacy *privacy.Redactor // of the console
	arrived func()            // is called when all of the body was read
}

const (
	maxQuery = 64 << 10 // bytes: a selection of 1,000 letters has 20 KiB
	maxBody  = 64 << 10 // of a route that names no other
)

// ServeHTTP answers a request.
func (c *console) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	protect(w.Header())
	path := hr.URL.EscapedPath()
	if path == "" { // so that links lead somewhere, the address of the root ends with a slash
		redirect(w, http.StatusTemporaryRedirect, "./"+lastPart(hr)+"/")
		return
	}
	if c.api != nil && strings.HasPrefix(path, "/api/") {
		c.api.ServeHTTP(w, hr)
		return
	}
	r := &request{http: hr, path: path, base: baseOf(path), now: c.now(), privacy: c.desk.Masks,
		arrived: c.awaitBody(w, hr)}
	var allowed []string
	if path[0] == '/' { // else a prefix was stripped that is not whole, as of /deadlettersandmore
		r.route, allowed = c.match(r)
	}
	timeout := c.timeout
	if r.route != nil && r.route.within > 0 {
		timeout = r.route.within
	}
	ctx, cancel := context.WithTimeout(hr.Context(), timeout)
	defer cancel()
	r.http = hr.WithContext(ctx)

	var a answer
	err := safecall.Call("console", func() (err error) { a, err = c.answer(w, r, allowed); return err })
	if err == nil {
		err = c.send(w, r, a)
	}
	if err != nil {
		c.fail(w, r, err)
	}
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

// answer checks what the person may do, and calls the route.
func (c *console) answer(w http.ResponseWriter, r *request, allowed []string) (answer, error) {
	if r.route != nil && r.route.right == nothing {
		return r.route.handle(c, r)
	}
	var err error
	if r.person, r.note, err = c.person(r.http); err != nil {
		return answer{}, err
	}
	if r.person.Role == nothing {
		return answer{}, &fault{status: http.StatusForbidden, title: "Not allowed", text: "You may not see the dead " +
			"letters of this service.",
			detail: r.note}
	}
	if len(allowed) > 0 {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		return answer{}, &fault{status: http.StatusMethodNotAllowed, title: "Not possible here",
			text: "This address does not take such a request."}
	}
	if r.route == nil {
		return answer{}, noPage()
	}
	if err := c.origins.Check(r.http); err != nil {
		return answer{}, &fault{status: http.StatusForbidden, title: "The form came from another site",
			text: "Nothing was changed. If this is your console behind a proxy that changes the Host header, add the " +
				"origin to console.Config.TrustedOrigins.", detail: say("Origin: %s, Host: %s", r.http.Header.Get("Origin"), r.http.Host)}
	}
	if r.person.Role < r.route.right {
		return answer{}, &fault{status: http.StatusForbidden, title: "Not allowed",
			text: say("This needs the right to %s. You have the right to %s.", roles[r.route.right],
				roles[r.person.Role]), detail: r.note}
	}
	if len(r.http.URL.RawQuery) > maxQuery {
		return answer{}, badInput(say("The query of the address has %s byte, and may have %s.|The query of the address "+
			"has %s bytes, and may have %s.", len(r.http.URL.RawQuery), maxQuery))
	}
	if r.query, err = url.ParseQuery(r.http.URL.RawQuery); err != nil {
		return answer{}, badInput("The address is damaged: its query cannot be read.")
	}
	if name, found := unknown(r.query, r.route.fields); found {
		return answer{}, badInput(say("The address has a field %q, which this page does not have. Correct its name, or "+
			"leave it out: nothing is chosen by it.", boundedtext.Text(name, 100)))
	}
	limit := r.route.body
	if limit == 0 {
		limit = maxBody
	}
	r.http.Body = http.MaxBytesReader(w, r.http.Body, limit)
	return r.route.handle(c, r)
}

// form returns the fields of a form that was sent. One that no form of the route has is an error.
func (r *request) form() (url.Values, error) {
	err := r.http.ParseForm()
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return nil, tooLargeForm(large.Limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, &fault{status: http.StatusRequestTimeout, title: "This takes too long", text: "The form did not " +
			"arrive in time. Nothing was changed. Send it again."}
	}
	if err != nil || r.http.PostForm == nil {
		return nil, badForm()
	}
	r.arrived()
	if name, found := unknown(r.http.PostForm, r.route.form); found {
		return nil, badInput(say("The form has a field %q, which this page does not have. Nothing was changed. Correct "+
			"its name, or leave it out.", boundedtext.Text(name, 100)))
	}
	return r.http.PostForm, nil
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
func (c *console) can(who Person, name string) bool {
	return slices.ContainsFunc(c.routes, func(r route) bool { return r.name == name && who.Role >= r.right })
}

// log writes a line about an error that the server answers for.
func (c *console) log(r *request, err error) {
	name := ""
	if r.route != nil {
		name = r.route.name
	}
	logging.ConsoleFailed.Write(c.config.Logger, err, logging.Fields{"page": name, "method": r.http.Method})
}

// Package web is what the pages of the console and the API have in common: how a request finds its route, and what is
// checked before the route answers.
package web

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/operate"
)

// Route says who may send which request.
type Route struct {
	Name    string
	Method  string        // GET serves HEAD too
	Pattern string        // {name} stands for one part of the path
	Right   operate.Right // the least; Nothing is for what has no data
	Query   []string      // the fields of the query: another is refused, as a filter that is misspelt chooses all
	Body    int64         // bytes that a body may have, if not MaxBody
	Within  time.Duration // of all that the route does, if it is more than Front.Timeout
	// Answer answers it. send sends what it returned.
	Answer func(*Call) (send func() error, err error)
}

// What a request may have, in bytes. A selection of 1,000 letters has 20 KiB.
const (
	MaxQuery = 64 << 10
	MaxBody  = 64 << 10 // of a route that says no other
)

// Front is what all routes ask.
type Front struct {
	// Who is the person of a request, without a reason, and a note about the person.
	Who func(*http.Request) (who operate.Person, note string, err error)
	// Origin returns an error for a request that a page of another site sends.
	Origin func(*http.Request) error
	// Await bounds the time in which a body arrives. The returned function is called when all of it was read.
	Await   func(http.ResponseWriter, *http.Request) (arrived func())
	Now     func() time.Time
	Timeout func() time.Duration // of one request, with all its queries
}

// Call is a request on its way.
type Call struct {
	HTTP    *http.Request
	Writer  http.ResponseWriter
	Route   string // its name, or "" if the address has none
	Query   url.Values
	Person  operate.Person
	Note    string
	Now     time.Time
	Arrived func()
}

// Refusal is why a request does not reach a route.
type Refusal struct {
	operate.Problem
	Note string // about the person
}

func (r *Refusal) Error() string { return strings.TrimSpace(r.Problem.Error() + " " + r.Note) }

// Handler returns a handler of a table of routes below a prefix. fail answers a request that has no other answer.
func (f *Front) Handler(prefix string, table []Route, fail func(*Call, error)) http.Handler {
	paths := map[string]map[string]*Route{}
	for i := range table {
		of := &table[i]
		if paths[of.Pattern] == nil {
			paths[of.Pattern] = map[string]*Route{}
		}
		paths[of.Pattern][of.Method] = of
	}
	mux := http.NewServeMux()
	none := f.at(nil, fail)
	mux.Handle("/", none)
	for pattern, methods := range paths {
		at := strings.TrimSuffix(prefix+pattern, "/")
		if mux.Handle(at+"/{$}", f.at(methods, fail)); at != "" {
			mux.Handle(at, f.at(methods, fail))
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// the mux would redirect, and knows no prefix that was stripped
		if p := r.URL.EscapedPath(); !strings.HasPrefix(p, "/") || path.Clean(p) != strings.TrimSuffix(p, "/") && p != "/" {
			none.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// at answers requests to a path that takes some methods.
func (f *Front) at(methods map[string]*Route, fail func(*Call, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, hr *http.Request) {
		method := hr.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		var of Route
		if route := methods[method]; route != nil {
			of = *route
		}
		c := &Call{HTTP: hr, Writer: w, Route: of.Name, Now: f.Now(), Arrived: f.Await(w, hr)}
		ctx, cancel := context.WithTimeout(hr.Context(), max(f.Timeout(), of.Within))
		defer cancel()
		c.HTTP = hr.WithContext(ctx)
		var send func() error
		err := safecall.Call("console", func() (err error) {
			if err = f.check(c, of, slices.Sorted(maps.Keys(methods))); err == nil {
				send, err = of.Answer(c)
			}
			return err
		})
		if err == nil {
			err = send()
		}
		if err != nil {
			fail(c, err)
		}
	})
}

// check checks what the person may do, and what the request has. A route without a method is none.
func (f *Front) check(c *Call, of Route, methods []string) (err error) {
	refuse := func(status int, kind, title, note, format string, args ...any) *Refusal {
		return &Refusal{operate.Problem{Status: status, Type: kind, Title: title, Detail: fmt.Sprintf(format, args...)}, note}
	}
	if of.Method != "" && of.Right == operate.Nothing {
		return nil
	}
	if c.Person, c.Note, err = f.Who(c.HTTP); err != nil {
		return err
	}
	const notAllowed = "Not allowed"
	switch {
	case c.Person.Right == operate.Nothing:
		return refuse(http.StatusForbidden, operate.ProblemForbidden, notAllowed, c.Note,
			"You may not see the dead letters of this service.")
	case of.Method == "" && len(methods) > 0:
		allowed := strings.Join(methods, ", ")
		c.Writer.Header().Set("Allow", allowed)
		return refuse(http.StatusMethodNotAllowed, operate.ProblemMethod, "Not possible here", "",
			"The method is %s: this address takes %s.", boundedtext.Text(c.HTTP.Method, 20), allowed)
	case of.Method == "":
		return refuse(http.StatusNotFound, operate.ProblemNoRoute, "Not found", "", "There is nothing at this address.")
	case f.Origin(c.HTTP) != nil:
		return refuse(http.StatusForbidden, operate.ProblemCrossSite, "The request came from another site",
			boundedtext.Text("Origin: "+c.HTTP.Header.Get("Origin")+", Host: "+c.HTTP.Host, 500), "Nothing was changed. If this "+
				"is your console behind a proxy that changes the Host header, add the origin to console.Config.TrustedOrigins.")
	case c.Person.Right < of.Right:
		return refuse(http.StatusForbidden, operate.ProblemForbidden, notAllowed, c.Note,
			"This needs the right to %s. You have the right to %s.", of.Right, c.Person.Right)
	}
	const cannot = "This cannot be done"
	if n := len(c.HTTP.URL.RawQuery); n > MaxQuery {
		return refuse(http.StatusBadRequest, operate.ProblemInvalid, cannot, "",
			"The query of the address has %d bytes, and may have %d.", n, MaxQuery)
	}
	if c.Query, err = url.ParseQuery(c.HTTP.URL.RawQuery); err != nil {
		return refuse(http.StatusBadRequest, operate.ProblemInvalid, cannot, "",
			"The address is damaged: its query cannot be read.")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Query)) {
		if !slices.Contains(of.Query, name) {
			name = boundedtext.Text(name, 100)
			r := refuse(http.StatusBadRequest, operate.ProblemNoField, cannot, "", "The address has a field %q, which it does "+
				"not take. Correct its name, or leave it out: nothing is chosen by it.", name)
			r.Errors = []operate.FieldProblem{{Field: name, Detail: r.Detail}}
			return r
		}
	}
	c.HTTP.Body = http.MaxBytesReader(c.Writer, c.HTTP.Body, cmp.Or(of.Body, MaxBody))
	return nil
}

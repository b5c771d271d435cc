package console

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
)

// Feature V11: under any prefix, and behind a proxy that adds or removes one, each link of each page leads to a page.
func TestEveryLinkLeadsSomewhere(t *testing.T) {
	b := newBench(t)
	b.fill(3, 120)
	for what, mounted := range map[string]struct {
		root    string
		handler http.Handler
	}{
		"at the root":             {"/", b.console},
		"behind a longer address": {"/team/shop/deadletters/", http.StripPrefix("/team/shop/deadletters", b.console)},
	} {
		t.Run(what, func(t *testing.T) {
			seen, next := map[string]bool{}, []string{"http://example.com" + mounted.root}
			for len(next) > 0 {
				at := next[0]
				next = next[1:]
				w := httptest.NewRecorder()
				mounted.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, at, nil))
				testkit.Require(t, w.Code == http.StatusOK, "%s: status %d: %s", at, w.Code, w.Body)
				if !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
					continue
				}
				base := testkit.Must(url.Parse(at))
				for _, node := range (page{body: w.Body.String()}).elements(t, "") {
					for _, name := range []string{"href", "src", "action"} {
						link := attribute(node, name)
						if link == "" || strings.HasPrefix(link, "#") {
							continue
						}
						to := testkit.Must(base.Parse(link))
						testkit.Require(t, strings.HasPrefix(to.Path, mounted.root), "%s links to %s", at, to)
						if name == "action" { // a form sends fields with it
							continue
						}
						if !seen[to.String()] && count(seen, kindOf(to.Path)) < 6 {
							seen[to.String()] = true
							next = append(next, to.String())
						}
					}
				}
			}
			for _, page := range []string{"redrive", "discard", "letters/0", "letters/0/edit"} { // those that a letter leads to
				testkit.Check(t, count(seen, mounted.root+page) != 0, "no link led to %s", page)
			}
		})
	}
}

var numbers = regexp.MustCompile(`[0-9]+`)

// kindOf is the path of a page, the same for all letters.
func kindOf(path string) string { return numbers.ReplaceAllString(path, "0") }

// count is how many addresses of one kind of page were seen.
func count(seen map[string]bool, kind string) (n int) {
	for at := range seen {
		if u, err := url.Parse(at); err == nil && kindOf(u.Path) == kind {
			n++
		}
	}
	return n
}

// The root without its slash leads to the root, and nowhere else.
func TestRootWithoutSlash(t *testing.T) {
	b := newBench(t)
	for _, path := range []string{"/deadletters", "/javascript:alert(1)"} {
		w := httptest.NewRecorder()
		http.StripPrefix(path, b.console).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		base, _ := url.Parse("http://example.com" + path)
		to, err := base.Parse(w.Header().Get("Location"))
		testkit.Check(t, err == nil && w.Code == http.StatusTemporaryRedirect && to.String() == base.String()+"/",
			"%s: status %d, to %v, %v", path, w.Code, to, err)
	}
	w := httptest.NewRecorder()
	http.StripPrefix("/deadletters", b.console).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/deadlettersletters", nil))
	testkit.Check(t, w.Code == http.StatusNotFound, "status %d", w.Code)
	b.get("/elsewhere").want(t, http.StatusNotFound)
	b.get("//evil.example/").want(t, http.StatusNotFound)
}

// Feature V11: a page is at most 60 KiB, compressed, and needs one style and one script that a browser keeps for good.
func TestPagesAreSmall(t *testing.T) {
	b := newBench(t)
	b.fill(3, 600)
	for _, path := range []string{"/", "/causes", "/letters", "/letters?rows=500"} {
		p := b.get(path).want(t, http.StatusOK)
		testkit.Check(t, p.Header.Get("Content-Encoding") == "gzip" && p.sent <= 60<<10,
			"%s: %d bytes, %s", path, p.sent, p.Header.Get("Content-Encoding"))
		plain := b.get(path, func(r *http.Request) { r.Header.Set("Accept-Encoding", "gzip;q=0, br") })
		testkit.Check(t, plain.Header.Get("Content-Encoding") == "", "%s: not plain", path)
	}
	total := 0
	for _, name := range []string{styleName, scriptName, iconName} {
		p := b.get("/static/"+name).want(t, http.StatusOK)
		testkit.Check(t, strings.Contains(p.Header.Get("Cache-Control"), "immutable"), "%s is not kept", name)
		total += p.sent
	}
	testkit.Check(t, total <= 12<<10, "style, script and icon have %d bytes", total)
	b.get("/static/style.css").want(t, http.StatusNotFound)
	b.get("/static/..%2fconsole.go").want(t, http.StatusNotFound)
}

// Feature V11: a function given to the console that fails costs its part of a page. The log has the error.
func TestGivenFunctionsFail(t *testing.T) {
	var none *breaker.Breaker
	const why = "Which handlers are on hold is not known: the function of console.Config.Breakers failed. The log of the service says why."
	for says, breakers := range map[string]func() []circuit.Status{
		why:                      func() []circuit.Status { panic("the breakers are on fire") },
		"No handler is on hold.": none.Health,
	} {
		log := new(testkit.Log)
		b := newBench(t, func(c *Config) { c.Breakers, c.Logger = breakers, log })
		b.fill(1, 12)
		for _, live := range []string{"", "1"} {
			p := b.get("/", func(r *http.Request) { r.Header.Set("Spillway-Live", live) })
			p.want(t, http.StatusOK, ">12</a>", "no_such_customer", "Handlers on hold", says, "No campaign runs.", "Nothing was done with letters yet.")
			testkit.Check(t, (len(log.Errors()) > 0) == (says == why) && !strings.Contains(p.body, "on fire"),
				"the log has %v: %s", log.Errors(), p.body)
		}
	}
	b := newBench(t, func(c *Config) {
		c.Breakers = func() []circuit.Status { panic("the breakers are on fire") }
		c.Logger = burning{}
	})
	b.get("/").want(t, http.StatusOK, why)
	b.get("/letters", func(r *http.Request) { r.Header.Set("Test-Role", "panic") }).want(t, http.StatusServiceUnavailable, "Your access is not known")
}

// burning is a logger that panics.
type burning struct{ watermill.NopLogger }

func (burning) Error(string, error, watermill.LogFields) { panic("the logger is on fire") }

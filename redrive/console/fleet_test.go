package console

import (
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/browser"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// ships is a fleet of benches.
type ships struct {
	t       testing.TB
	fleet   *members
	benches map[string]*bench
}

// fleetOf makes a fleet. A header with the name of a service says what the person may do there.
func fleetOf(t testing.TB, benches map[string]*bench) *ships {
	t.Helper()
	configs := map[string]Config{}
	for name, b := range benches {
		c := b.console.config
		c.Access = func(r *http.Request) (Person, error) {
			return access(&http.Request{Header: http.Header{"Test-Role": r.Header.Values(name)}})
		}
		configs[name] = c
	}
	m := testkit.Must(Fleet(configs)).(*members)
	m.timeout = time.Minute // a database that is slow on this machine is not unavailable
	return &ships{t, m, benches}
}

// in says what a person may do in a service.
func in(service string, role string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(service, role) }
}

func (s *ships) get(path string, change ...func(*http.Request)) page {
	s.t.Helper()
	return send(s.t, s.fleet, httptest.NewRequest(http.MethodGet, path, nil), change...)
}

func (s *ships) post(path string, form url.Values, change ...func(*http.Request)) page {
	s.t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return send(s.t, s.fleet, r, change...)
}

// Feature V11: the page of a fleet has all services, masked as each does it, but those that the person may not see.
func TestFleet(t *testing.T) {
	orders, payroll, log := newBench(t), newBench(t), new(testkit.Log)
	shipping := newBench(t, func(c *Config) { c.Privacy = testkit.Must(privacy.New(privacy.Rules{Patterns: []string{"customer"}})) })
	panics, closed := newBench(t, func(c *Config) { c.Logger = log }), newBench(t, func(c *Config) { c.Logger = log })
	f := fleetOf(t, map[string]*bench{"orders": orders, "shipping": shipping, "payroll": payroll, "panics": panics, "closed": closed})
	orders.fill(1, 40)
	shipping.fill(1, 20)
	payroll.fill(2, 50)
	testkit.NoError(t, closed.db.Close())
	p := f.get("/", in("payroll", roles[nothing]), in("panics", "panic"), in("shipping", roles[LookWithoutPayload]))
	p.want(t, http.StatusOK, `href="./s/orders/"><strong>orders</strong>`, `href="./s/shipping/letters">20</a>`, "60 letters wait.",
		"1 service is not shown", "This service could not be read. Its log says why.", "<bdi>customer ", "<bdi>[redacted] ",
		`href="./s/shipping/letters?cause=`)
	p.wantNot(t, "payroll", "panics", "in the directory", "You are", "closed</a>")
	testkit.Check(t, len(log.Errors()) == 2, "the log has %v", log.Errors())
	var counts []int
	for _, cell := range p.elements(t, "td") {
		if attribute(cell, "data-label") == "Letters" {
			counts = append(counts, -testkit.Must(strconv.Atoi(cell.FirstChild.Data)))
		}
	}
	testkit.Check(t, len(counts) == 8 && slices.IsSorted(counts), "causes with %v letters", counts)
	for _, link := range p.elements(t, "a") {
		if to := attribute(link, "href"); strings.HasPrefix(to, "./s/") && !strings.HasPrefix(to, "./s/closed/") {
			f.get(strings.TrimPrefix(to, ".")).want(t, http.StatusOK)
		}
	}
	none := []func(*http.Request){in("orders", roles[nothing]), in("shipping", roles[nothing]), in("payroll", roles[nothing]),
		in("closed", roles[nothing])}
	for role, status := range map[string]int{roles[nothing]: http.StatusForbidden, "error": http.StatusServiceUnavailable} {
		p = f.get("/", append(none, in("panics", role))...).want(t, status, "/static/"+styleName)
		p.wantNot(t, "orders", "shipping", "payroll", "panics", "closed")
	}
}

// Feature V11: no right goes from one service of a fleet to another, and a page of another site changes nothing.
func TestFleetRights(t *testing.T) {
	a, b := newBench(t), newBench(t)
	f := fleetOf(t, map[string]*bench{"a": a, "b": b})
	a.fill(1, 3)
	b.fill(1, 3)
	for _, r := range f.fleet.own.routes {
		testkit.Check(t, r.Method == http.MethodGet && (r.Pattern == "/" || r.Pattern == "/static/{file}"),
			"the fleet has a route %v %v: give it a test of its rights", r.Method, r.Pattern)
	}
	approver := []func(*http.Request){in("a", roles[Approve]), in("b", roles[LookWithoutPayload])}
	form := with(a.get("/discard?seq=1").fields(t), "reason", "INC-7")
	f.post("/s/b/discard", form, approver...).want(t, http.StatusForbidden, "You have the right to look without payload.")
	f.get("/s/b/api/v1/letters/1/payload", approver...).want(t, http.StatusForbidden)
	for _, path := range []string{"/s/a/discard", "/s/a/api/v1/discards"} {
		for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
			f.post(path, form, append(approver, in(header, value))...).want(t, http.StatusForbidden)
		}
	}
	a.want(letters.StatusWaiting, 3)
	b.want(letters.StatusWaiting, 3)
	f.post("/s/a/discard", form, append(approver, in("Sec-Fetch-Site", "same-origin"))...).want(t, http.StatusSeeOther)
	a.want(letters.StatusDiscarded, 1)
	for _, path := range []string{"/s/", "/s/c/", "/s/%61/", "/letters", "/api/v1/"} {
		f.get(path).want(t, http.StatusNotFound)
	}
	f.post("/", nil).want(t, http.StatusNotFound)
}

// Feature V11: what one person sees of a fleet is not kept for another.
func TestFleetByPerson(t *testing.T) {
	f := fleetOf(t, map[string]*bench{"a": newBench(t), "b": newBench(t)})
	f.benches["b"].fill(1, 3)
	both := f.get("/")
	tag := both.Header.Get("ETag")
	f.get("/", in("If-None-Match", tag)).want(t, http.StatusNotModified)
	f.get("/", in("If-None-Match", tag), in("b", roles[nothing])).want(t, http.StatusOK)
	testkit.Check(t, both.Header.Get("Cache-Control") == "no-store", "%v", both.Header)
	f.get("/", in(live, "1")).wantNot(t, "<html")
}

// Feature V11: a fleet is mounted anywhere. From each service a link leads back to it.
func TestFleetMounted(t *testing.T) {
	f := fleetOf(t, map[string]*bench{"orders": newBench(t), "orders2": newBench(t)})
	f.benches["orders"].fill(1, 3)
	at := "http://example.com/ops/fleet"
	for _, step := range []string{"", "./s/orders/", "./letters", "letters/1", "../../../", "./s/orders2"} {
		base := testkit.Must(url.Parse(at))
		at = base.ResolveReference(testkit.Must(url.Parse(step))).String()
		p := send(t, http.StripPrefix("/ops/fleet", f.fleet), httptest.NewRequest(http.MethodGet, at, nil))
		if to := p.Header.Get("Location"); to != "" {
			at = base.ResolveReference(testkit.Must(url.Parse(at))).ResolveReference(testkit.Must(url.Parse(to))).String()
			testkit.Check(t, strings.HasSuffix(at, "/"), "to %s", at)
			continue
		}
		p.want(t, http.StatusOK)
		if strings.Contains(at, "/s/") {
			p.want(t, http.StatusOK, ">All services</a>")
		}
	}
	testkit.Check(t, at == "http://example.com/ops/fleet/s/orders2/", "at %s", at)
}

// A fleet that cannot be is an error that names the service.
func TestFleetRefuses(t *testing.T) {
	well := newBench(t).console.config
	for _, name := range []string{"", ".", "..", "-a", "a/b", "A", "ä", "a b", "<b>", "a?", "%61", strings.Repeat("a", 61)} {
		testkit.Says(t, testkit.Err(Fleet(map[string]Config{name: well, "well": well})), "a name stands in addresses")
	}
	testkit.Says(t, testkit.Err(Fleet(nil)), "services is empty")
	testkit.Says(t, testkit.Err(Fleet(map[string]Config{"well": well, "orders": {}})), `services["orders"]`)
	for _, name := range []string{"a", "0", "a.b_c-d", strings.Repeat("a", 60)} {
		testkit.NoError(t, testkit.Err(Fleet(map[string]Config{name: well})))
	}
}

// Feature V11: the page of a fleet has no fault that axe-core knows, and is no wider than a desk or a telephone.
func testFleetPage(t *testing.T, engine *browser.Browser) {
	f := fleetOf(t, map[string]*bench{"orders": newBench(t), "a-service-with-a-name-of-sixty-characters-that-nothing-break": newBench(t),
		"closed": newBench(t), "panics": newBench(t)})
	f.benches["orders"].incident()
	testkit.NoError(t, f.benches["closed"].db.Close())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("panics", "panic")
		f.fleet.ServeHTTP(w, r)
	}))
	defer server.Close()
	for _, size := range []browser.Options{{}, onPhone(false)} {
		p := engine.Page(t, size)
		p.Open(server.URL + "/")
		fits(t, p, "the fleet")
		clean(t, p, "the fleet")
	}
}

const secret = "s3cr3t-of-the-fleet"

// tokenFile is a file with the token.
func tokenFile(t testing.TB, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	testkit.NoError(t, os.WriteFile(path, []byte(secret+"\n"), 0o600))
	testkit.NoError(t, os.Chmod(path, mode))
	return path
}

// overAPI is a fleet with one service, whose console a server has.
func overAPI(t testing.TB, url string, log *testkit.Log) *ships {
	t.Helper()
	config := Config{URL: url, TokenFile: tokenFile(t, 0o600), Access: access}
	config.Logger = log
	m := testkit.Must(Fleet(map[string]Config{"far": config})).(*members)
	m.timeout = time.Minute
	return &ships{t, m, nil}
}

// Feature V11: a service with a console elsewhere is read over its API, and the fleet's own Access knows the person.
func TestFleetOverAPI(t *testing.T) {
	far := newBench(t, func(c *Config) {
		c.Access = func(r *http.Request) (Person, error) {
			if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+secret)) != 1 || r.Header.Get("Cookie") != "" {
				return Person{}, nil
			}
			return Person{Name: "fleet", Role: LookWithoutPayload}, nil
		}
	})
	far.fill(1, 30)
	server := httptest.NewServer(http.StripPrefix("/deadletters", far.console))
	defer server.Close()
	home := server.URL + "/deadletters/"
	f := overAPI(t, home, new(testkit.Log))
	p := f.get("/", in("Cookie", "session=ann"))
	p.want(t, http.StatusOK, `href="`+home+`letters">30</a>`, `href="`+home+`letters?cause=`, "no_such_customer", "30 letters wait.")
	p.wantNot(t, secret)
	f.get("/s/far/").want(t, http.StatusNotFound)
	f.get("/", as(nothing)).want(t, http.StatusForbidden)
}

// Feature V11: no server of a service harms the fleet: with redirects, long answers, what it says, or for its token.
func TestFleetOverHostileAPI(t *testing.T) {
	var stolen atomic.Int32
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen.Add(1) }))
	defer thief.Close()
	evil := `<script>alert(\"mark\")</script>\u202e\u0000`
	causes := `{"causes":[{"cause":"` + evil + `","reason":"` + evil + `","handler":"` + strings.Repeat("W", 1<<17) +
		`","description":"` + evil + `","count":-5,"class":"` + evil + `"}]}`
	const unread = "This service could not be read."
	for _, row := range []struct {
		what, want string
		answer     http.HandlerFunc
	}{
		{"a redirect", unread, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, thief.URL+r.URL.Path, http.StatusFound)
		}},
		{"a long answer", unread, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"letters":{"waiting":1},"more":"` + strings.Repeat("x", 1<<20) + `"}`))
		}},
		{"another kind", unread, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"letters":{"waiting":1}}`)) }},
		{"a time that is none", unread, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"letters":{"waiting":1},"oldest_failed_at":"` + evil + `"}`))
		}},
		{"a refusal", unread, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }},
		{"hostile texts", "&lt;script&gt;", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			if strings.HasSuffix(r.URL.Path, "/causes") {
				_, _ = w.Write([]byte(causes))
			} else {
				_, _ = w.Write([]byte(`{"letters":{"waiting":-9,"new":3},"campaigns":{"running":2,"odd":-9},"what":{}}`))
			}
		}},
	} {
		server := httptest.NewServer(row.answer)
		log := new(testkit.Log)
		p := overAPI(t, server.URL, log).get("/")
		server.Close()
		p.want(t, http.StatusOK, row.want).wantNot(t, secret, "\u202e", "<script>alert")
		errs := fmt.Sprint(log.Errors())
		testkit.Check(t, len(p.body) <= 64<<10 && !strings.Contains(errs, secret) &&
			(row.want == unread) == (errs != "[]"), "%s: %d bytes, %v", row.what, len(p.body), errs)
	}
	testkit.Check(t, stolen.Load() == 0, "a redirect was followed")
}

package console

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/web"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature V11, decision 24: with Loopback this machine may look, and what may come from elsewhere is refused.
func TestLoopback(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Access = Loopback })
	b.fill(1, 3)
	for _, test := range []struct {
		from, host string
		headers    []string
		want       int
	}{
		{"127.0.0.1:4711", "localhost:8080", nil, 200},
		{"127.8.8.8:4711", "127.0.0.1", nil, 200},
		{"[::1]:4711", "[::1]:8080", nil, 200},
		{"192.0.2.1:4711", "localhost", nil, 403},
		{"[2001:db8::1]:4711", "localhost", nil, 403},
		{"@", "localhost", nil, 403},
		{"", "localhost", nil, 403},
		{"127.0.0.1:4711", "rebound.example", nil, 403},
		{"127.0.0.1:4711", "localhost.example", nil, 403},
		{"127.0.0.1:4711", "", nil, 403},
		{"127.0.0.1:4711", "localhost", []string{"X-Forwarded-For", "192.0.2.1"}, 403},
		{"127.0.0.1:4711", "localhost", []string{"Forwarded", "for=127.0.0.1"}, 403},
	} {
		p := b.get("/letters", func(r *http.Request) {
			r.RemoteAddr, r.Host = test.from, test.host
			for i := 0; i < len(test.headers); i += 2 {
				r.Header.Set(test.headers[i], test.headers[i+1])
			}
		})
		testkit.Check(t, p.StatusCode == test.want && strings.Contains(p.body, "console.Loopback"),
			"%+v: status %d: %s", test, p.StatusCode, p.body)
		testkit.Check(t, test.want != 403 || !strings.Contains(p.body, "<nav"),
			"%+v: the page shows where things are", test)
		warned := strings.Contains(p.body, "A proxy or a tunnel on this machine lets others in")
		testkit.Check(t, warned == (test.want == 200), "%+v: warned of proxies: %v", test, warned)
	}
	local := func(r *http.Request) { r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost" }
	for _, r := range b.console.routes {
		if r.Right > operate.Look && r.Method == http.MethodPost {
			b.post(strings.ReplaceAll(r.Pattern, "{seq}", "1"), nil, local).want(t, http.StatusForbidden)
		}
	}
}

// Feature V11: an access function that fails, panics, or gives no name lets nothing happen, and its error is not shown.
func TestAccessFails(t *testing.T) {
	log := new(testkit.Log)
	b, changed := changing(t, func(c *Config) { c.Logger = log })
	for _, role := range []string{"error", "panic"} {
		b.get("/letters", func(r *http.Request) { r.Header.Set("Test-Role", role) }).
			want(t, http.StatusServiceUnavailable, "Your access is not known").wantNot(t, "directory")
	}
	testkit.Equal(t, "errors in the log", len(log.Errors()), 2)
	nameless := newBench(t, func(c *Config) {
		c.Access = func(*http.Request) (Person, error) { return Person{Role: Approve}, nil }
	})
	nameless.console.routes = b.console.routes
	nameless.console.serve = nameless.console.handler()
	nameless.get("/letters").want(t, http.StatusOK, "The access function gave no name, and the record needs one. So you may look and do nothing.")
	nameless.post("/change", nil).want(t, http.StatusForbidden)
	beyond := newBench(t, func(c *Config) {
		c.Access = func(*http.Request) (Person, error) { return Person{Name: "\u202eeve\x00", Role: 200}, nil }
	})
	beyond.get("/letters").want(t, http.StatusOK, `\u202eeve`, "may approve")
	testkit.Check(t, *changed == 0, "changed %d times", *changed)
}

// A configuration that cannot be is an error that names the field, and has no password.
func TestRefuses(t *testing.T) {
	well := newBench(t).console.config
	origins := func(all ...string) Config {
		return Config{Campaigns: well.Campaigns, Access: access, TrustedOrigins: all}
	}
	const url = "https://shop.example.com/deadletters/"
	for _, row := range []struct {
		says   string
		config Config
	}{
		{"Config.Campaigns ", Config{Access: access}},
		{"Config.Access ", Config{Campaigns: well.Campaigns}},
		{"Config.TrustedOrigins ", origins("ops.example.com")},
		{"https://a.example/path", origins("https://a.example/path")},
		{"TrustedOrigins", origins("*")},
		{"TrustedOrigins", origins("")},
		{"for a service of console.Fleet", Config{URL: url, Access: access}},
	} {
		testkit.Says(t, testkit.Err(New(row.config)), row.says)
	}
	for says, config := range map[string]Config{
		"Config.URL has a name or a password": {URL: "https://ann:hunter2@shop.example.com/", Access: access},
		"a token goes over http to this":      {URL: "http://169.254.169.254/latest", Access: access},
		"leave out what begins with":          {URL: url + "?token=1", Access: access},
		"Config.URL is \"file:///etc":         {URL: "file:///etc/passwd", Access: access},
		"which others may read":               {URL: url, TokenFile: tokenFile(t, 0o644), Access: access},
		"Config.Access is nil":                {URL: url},
		"leave those to the console there":    {URL: url, Access: access, Campaigns: well.Campaigns},
		"Config.URL and Config.TokenFile are": {TokenFile: "token", Access: access, Campaigns: well.Campaigns},
	} {
		err := testkit.Err(Fleet(map[string]Config{"far": config}))
		testkit.Says(t, err, says)
		testkit.Check(t, !strings.Contains(err.Error(), "hunter2"), "%v", err)
	}
}

// changing is a Console with a route that changes something.
func changing(t *testing.T, change ...func(*Config)) (b *bench, changed *int) {
	b, changed = newBench(t, change...), new(int)
	b.console.routes = append(b.console.routes, route{Route: web.Route{Name: "change", Method: http.MethodPost, Pattern: "/change", Right: operate.Act}, form: []string{"a"},
		handle: func(_ *console, r *request) (answer, error) {
			_, err := r.form()
			if err == nil {
				*changed++
			}
			return answer{to: r.link("letters", nil)}, err
		}})
	b.console.serve = b.console.handler()
	return b, changed
}

// Feature V11: what a page of another site sends changes nothing, whatever cookies come with it.
func TestOtherOrigins(t *testing.T) {
	b, changed := changing(t, func(c *Config) { c.TrustedOrigins = []string{"https://ops.example.com"} })
	for _, test := range []struct {
		what    string
		headers []string
		want    int
	}{
		{"the console's own page", []string{"Sec-Fetch-Site", "same-origin", "Origin", "https://example.com"}, 303},
		{"its page over plain HTTP, where browsers send no Sec-Fetch-Site", []string{"Origin", "http://example.com"}, 303},
		{"a trusted origin behind a proxy", []string{"Sec-Fetch-Site", "cross-site", "Origin", "https://ops.example.com"}, 303},
		{"a program", nil, 303},
		{"another site", []string{"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"}, 403},
		{"a site beside it", []string{"Sec-Fetch-Site", "same-site", "Origin", "https://evil.example.com"}, 403},
		{"another port over plain HTTP", []string{"Origin", "http://example.com:81"}, 403},
		{"a page without an origin", []string{"Origin", "null"}, 403},
		{"a frame without an origin", []string{"Sec-Fetch-Site", "cross-site", "Origin", "null"}, 403},
		{"a forged cookie", []string{"Sec-Fetch-Site", "cross-site", "Cookie", "session=admin; csrf=1", "X-Csrf-Token", "1", "Origin", "https://evil.example"}, 403},
		{"a forged host", []string{"Sec-Fetch-Site", "cross-site", "X-Forwarded-Host", "evil.example", "Origin", "https://evil.example"}, 403},
		{"an origin that begins like a trusted one", []string{"Sec-Fetch-Site", "cross-site", "Origin", "https://ops.example.com.evil.example"}, 403},
	} {
		before := *changed
		r := httptest.NewRequest(http.MethodPost, "http://example.com/change", strings.NewReader("a=b"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for i := 0; i < len(test.headers); i += 2 {
			r.Header.Set(test.headers[i], test.headers[i+1])
		}
		p := b.send(r)
		testkit.Check(t, p.StatusCode == test.want && (*changed > before) == (test.want == 303),
			"%s: status %d, want %d; changed: %v", test.what, p.StatusCode, test.want, *changed > before)
		testkit.Check(t, test.want != 403 || strings.Contains(p.body, "TrustedOrigins"),
			"%s: the page does not say what to set: %s", test.what, p.body)
	}
}

// Feature V11: GET changes nothing, and no other method passes for one.
func TestMethods(t *testing.T) {
	b, changed := changing(t)
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions, http.MethodTrace, "X"} {
		p := b.send(httptest.NewRequest(method, "/change", nil), func(r *http.Request) { r.Header.Set("X-Http-Method-Override", "POST") })
		testkit.Check(t, p.StatusCode == http.StatusMethodNotAllowed && p.Header.Get("Allow") == "POST",
			"%s: status %d, Allow %q", method, p.StatusCode, p.Header.Get("Allow"))
	}
	b.send(httptest.NewRequest(http.MethodPost, "/letters", nil)).want(t, http.StatusMethodNotAllowed)
	testkit.Equal(t, "HEAD", b.send(httptest.NewRequest(http.MethodHead, "/letters", nil)).want(t, http.StatusOK).body, "")
	testkit.Check(t, *changed == 0, "changed %d times", *changed)
}

// Feature V11: a form has a bound, and what is no form is refused.
func TestForms(t *testing.T) {
	b, changed := changing(t)
	form := func(body, kind string) *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/change", strings.NewReader(body))
		r.Header.Set("Content-Type", kind)
		return r
	}
	const urlencoded = "application/x-www-form-urlencoded"
	b.send(form("a="+strings.Repeat("x", web.MaxBody), urlencoded)).want(t, http.StatusRequestEntityTooLarge, "65536 bytes")
	b.send(form("a=%zz", urlencoded)).want(t, http.StatusBadRequest)
	b.send(form("a=b", "text/plain;;;")).want(t, http.StatusBadRequest)
	testkit.Check(t, *changed == 0, "changed %d times", *changed)
	b.send(form("a=b", urlencoded)).want(t, http.StatusSeeOther)
}

// Feature V11: each answer has the policy that lets a browser run and load nothing but the console's own files.
func TestPolicy(t *testing.T) {
	b := newBench(t)
	b.fill(1, 3)
	for _, path := range []string{"/", "/letters", "/nowhere", "/letters?status=x", "/static/" + scriptName, "/static/none"} {
		h := b.get(path).Header
		policy := h.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'"} {
			testkit.Check(t, strings.Contains(policy, part), "%s: the policy %q lacks %s", path, policy, part)
		}
		testkit.Check(t, !strings.Contains(policy, "unsafe") && !strings.Contains(policy, "*"), "%s: %q", path, policy)
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "same-origin"} {
			got := h.Get(name)
			testkit.Check(t, got == want, "%s: %s is %q, want %q", path, name, got, want)
		}
		testkit.Check(t, len(h.Values("Set-Cookie")) == 0, "%s sets a cookie", path)
		cached := h.Get("Cache-Control")
		testkit.Check(t, (cached == "no-store") != strings.HasSuffix(path, scriptName), "%s: Cache-Control is %q", path, cached)
	}
}

// Feature V11: a body that does not arrive ends its request and connection. Rights are judged before it is read.
func TestSlowBody(t *testing.T) {
	b := newBench(t)
	b.console.timeout = 100 * time.Millisecond
	server := httptest.NewServer(b.console)
	defer server.Close()
	for _, row := range []struct {
		method, path, role string
		status             int
	}{
		{http.MethodPost, "/campaigns/x/pause", "operate", http.StatusRequestTimeout},
		{http.MethodPost, "/redrive", "operate", http.StatusRequestTimeout},
		{http.MethodPost, "/campaigns/x/pause", "look", http.StatusForbidden},
		{http.MethodPost, "/campaigns/x/pause", "none", http.StatusForbidden},
		{http.MethodPost, "/elsewhere", "operate", http.StatusNotFound},
		{http.MethodGet, "/static/" + styleName, "none", http.StatusOK},
	} {
		t.Run(row.method+row.path+row.role, func(t *testing.T) {
			connection := testkit.Must(net.Dial("tcp", server.Listener.Addr().String()))
			defer func() { _ = connection.Close() }()
			_, err := fmt.Fprintf(connection, "%s %s HTTP/1.1\r\nHost: localhost\r\nTest-Role: %s\r\nSec-Fetch-Site: same-origin\r\n"+
				"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\nrate", row.method, row.path, row.role)
			testkit.NoError(t, err)
			testkit.Within(t, "the connection ends", func() {
				from := bufio.NewReader(connection)
				answer, err := http.ReadResponse(from, nil)
				if err != nil || answer.StatusCode != row.status {
					t.Errorf("%+v, %v", answer, err)
					return
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
				testkit.Check(t, testkit.Err(from.ReadByte()) != nil, "there is more than one answer")
			})
		})
	}
}

// Feature V11: a body that has arrived has no deadline any more: the request has its own time.
func TestBodyArrived(t *testing.T) {
	b := newBench(t)
	deadlines := &deadlined{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequest(http.MethodPost, "/campaigns/x/rate", strings.NewReader("reason=x&rate=1"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	b.console.ServeHTTP(deadlines, r)
	testkit.Check(t, len(deadlines.set) == 2 && !deadlines.set[0].IsZero() && deadlines.set[1].IsZero(),
		"the deadlines are %v", deadlines.set)
}

// deadlined keeps the deadlines that are set.
type deadlined struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlined) SetReadDeadline(at time.Time) error { d.set = append(d.set, at); return nil }

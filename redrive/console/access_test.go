package console

import (
	"net/http"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Feature V11, decision 24: with Loopback a person on the same machine may look. A request that may come from elsewhere
// is refused, and the page says why. One that a proxy sends without a header looks as one of this machine: it is
// answered, and the page says that it may come from others.
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
		if r.right > Look && r.method == http.MethodPost {
			b.post(strings.ReplaceAll(r.pattern, "{seq}", "1"), nil, local).want(t, http.StatusForbidden)
		}
	}
}

// Feature V11: an access function that fails, panics, or gives no name lets nothing happen, and shows nothing of its
// error.
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

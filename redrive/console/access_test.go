package console

import (
	"net/http"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
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
		if p.StatusCode != test.want || !strings.Contains(p.body, "console.Loopback") {
			t.Errorf("%+v: status %d: %s", test, p.StatusCode, p.body)
		}
		if test.want == 403 && strings.Contains(p.body, "<nav") {
			t.Errorf("%+v: the page shows where things are", test)
		}
		if warned := strings.Contains(p.body, "A proxy or a tunnel on this machine lets others in"); warned != (test.want == 200) {
			t.Errorf("%+v: warned of proxies: %v", test, warned)
		}
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
		p := b.get("/letters", func(r *http.Request) { r.Header.Set("Test-Role", role) })
		p.want(t, http.StatusServiceUnavailable, "Your access is not known")
		if strings.Contains(p.body, "directory") {
			t.Errorf("%s: the page says what failed: %s", role, p.body)
		}
	}
	if n := len(log.Errors()); n != 2 {
		t.Errorf("%d errors in the log", n)
	}
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
	if *changed != 0 {
		t.Errorf("changed %d times", *changed)
	}
}

// A wrong configuration is an error that names its field.
func TestNewRefuses(t *testing.T) {
	all := testkit.Must(campaigns.New(t.Context(), fixture.SQLite.NewStore(t), campaigns.Config{}))
	who := func(*http.Request) (Person, error) { return Person{}, nil }
	for field, config := range map[string]Config{
		"Campaigns":      {Access: who},
		"Access":         {Campaigns: all},
		"TrustedOrigins": {Campaigns: all, Access: who, TrustedOrigins: []string{"ops.example.com"}},
	} {
		testkit.Says(t, testkit.Err(New(config)), "Config."+field+" ")
	}
	for _, config := range []Config{
		{Campaigns: all, Access: who, TrustedOrigins: []string{"https://a.example/path"}},
		{Campaigns: all, Access: who, TrustedOrigins: []string{"*"}}, {Campaigns: all, Access: who, TrustedOrigins: []string{""}},
	} {
		if _, err := New(config); err == nil {
			t.Errorf("%+v is taken", config)
		}
	}
	if c, err := New(Config{Campaigns: all, Access: Loopback}); err != nil || c == nil {
		t.Error(err)
	}
}

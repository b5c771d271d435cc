package console

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
)

// Feature V11: with Loopback a person on the same machine may look. A request that may come from elsewhere is refused,
// and the page says why.
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

// throughReverseProxy asks through Go's proxy, as its documentation sets it up: it adds no header, and asks by the
// target's own name.
func throughReverseProxy(t *testing.T, target *url.URL, path string) (int, string) {
	t.Helper()
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }})
	defer proxy.Close()
	request, err := http.NewRequest(http.MethodGet, proxy.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = "letters.example.com"
	answer, err := proxy.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return answered(t, answer)
}

// throughProxyPass asks as nginx does with a plain proxy_pass: the Host header is the target's, and the connection
// closes.
func throughProxyPass(t *testing.T, target *url.URL, path string) (int, string) {
	t.Helper()
	conn, err := net.Dial("tcp", target.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.0\r\nHost: %s\r\nConnection: close\r\nUser-Agent: x\r\n\r\n", path, target.Host); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	return answered(t, answer)
}

func answered(t *testing.T, answer *http.Response) (int, string) {
	t.Helper()
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// Feature V11, decision 24: a request behind a proxy that adds no header looks as one of this machine. So there is no
// console without an access function. Loopback answers such a request, and says that it may; a function that knows
// people refuses it.
func TestProxyThatAddsNoHeader(t *testing.T) {
	letter := fixture.Letter("order-4711", `{"customer":"Anna Secret"}`)
	for name, through := range map[string]func(*testing.T, *url.URL, string) (int, string){
		"httputil.ReverseProxy": throughReverseProxy, "proxy_pass": throughProxyPass,
	} {
		for what, access := range map[string]func(*http.Request) (Person, error){
			"no function": nil, "a function": func(r *http.Request) (Person, error) {
				if r.Header.Get("X-Forwarded-Email") == "" {
					return Person{}, nil
				}
				return Person{Name: r.Header.Get("X-Forwarded-Email"), Role: Operate}, nil
			}, "Loopback": Loopback,
		} {
			t.Run(name+" with "+what, func(t *testing.T) {
				b := newBench(t)
				fixture.Publish(t, b.store, "orders.dlq", letter.Copy())
				console, err := New(Config{Campaigns: b.campaigns, Access: access})
				if access == nil {
					if err == nil || !strings.Contains(err.Error(), "Config.Access is nil") || !strings.Contains(err.Error(), "console.Loopback") {
						t.Errorf("a console without an access function: %v", err)
					}
					if err != nil {
						return
					}
				}
				server := httptest.NewServer(console)
				defer server.Close()
				target, err := url.Parse(server.URL)
				if err != nil {
					t.Fatal(err)
				}
				status, page := through(t, target, "/letters/1?view=text")
				shows := strings.Contains(page, "Anna Secret")
				if what == "Loopback" {
					if status != http.StatusOK || !shows || !strings.Contains(page, "A proxy or a tunnel on this machine lets others in") {
						t.Errorf("Loopback: status %d, the payload %v: %s", status, shows, page)
					}
				} else if status != http.StatusForbidden || shows {
					t.Errorf("status %d, the payload %v", status, shows)
				}
			})
		}
	}
}

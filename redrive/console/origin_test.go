package console

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// changing is a Console with a route that changes something.
func changing(t *testing.T, change ...func(*Config)) (b *bench, changed *int) {
	b, changed = newBench(t, change...), new(int)
	b.console.routes = append(b.console.routes, route{name: "change", method: http.MethodPost, pattern: "/change", right: Operate, form: []string{"a"},
		handle: func(_ *console, r *request) (answer, error) {
			_, err := r.form()
			if err == nil {
				*changed++
			}
			return answer{to: r.link("letters", nil)}, err
		}})
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
	if p := b.send(httptest.NewRequest(http.MethodHead, "/letters", nil)); p.StatusCode != http.StatusOK || p.body != "" {
		t.Errorf("HEAD: status %d, %q", p.StatusCode, p.body)
	}
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
	b.send(form("a="+strings.Repeat("x", maxBody), urlencoded)).want(t, http.StatusRequestEntityTooLarge, "65,536 bytes")
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
		if cached := h.Get("Cache-Control"); (cached == "no-store") == strings.HasSuffix(path, scriptName) {
			t.Errorf("%s: Cache-Control is %q", path, cached)
		}
	}
}

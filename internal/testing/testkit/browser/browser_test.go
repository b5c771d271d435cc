package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/browser"
)

const frame = `<!doctype html><html lang="en"><head><title>%[1]s</title><link rel="icon" href="data:,"><meta name="viewport" content="width=device-width">
<style>body{background:#fff;color:#000}@media (prefers-color-scheme:dark){body{background:#000;color:#fff}a{color:#9cf}}</style></head>
<body><main><h1>%[1]s</h1>%[2]s</main></body></html>`

var pages = map[string]string{
	"/":       `<p><a id="next" href="/next">on</a></p>`,
	"/bad":    `<img src="x.png"><script>alert("hello"); console.error("wrong"); fetch("http://127.0.0.1:1/far").catch(() => {}); undefined.x</script>`,
	"/policy": `<script>document.title = "inline"</script>`,
}

func serve(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, found := pages[r.URL.Path]
		if !found {
			http.NotFound(w, r)
			return
		}
		if r.URL.Path == "/policy" {
			w.Header().Set("Content-Security-Policy", "script-src 'self'")
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, frame, "Page "+r.URL.Path, body)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// Whatever a page does that it should not is heard, and axe-core is asked.
func TestBrowser(t *testing.T) {
	b, url := browser.Start(t), serve(t)
	p := b.Page(t, browser.Options{})
	p.Open(url + "/bad")
	for _, want := range []string{`dialog: alert "hello"`, `console: "wrong"`, "another host: http://127.0.0.1:1/far", "exception:", "x.png"} {
		testkit.Eventually(t, want, func() bool {
			return slices.ContainsFunc(p.Trouble(), func(line string) bool { return strings.Contains(line, want) })
		}, func() string { return fmt.Sprint(p.Trouble()) })
	}
	if found := fmt.Sprint(p.Axe()); !strings.Contains(found, "image-alt") {
		t.Errorf("axe-core: %s", found)
	}
	p = b.Page(t, browser.Options{Dark: true})
	p.Open(url + "/")
	if found := p.Axe(); len(found) > 0 {
		t.Errorf("axe-core on a page without fault: %s", found)
	}
	p.Open(url + "/policy")
	testkit.Eventually(t, "the policy", func() bool { return strings.Contains(fmt.Sprint(p.Trouble()), "Content Security Policy") })
}

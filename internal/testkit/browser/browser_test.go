package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/browser"
)

const frame = `<!doctype html><html lang="en"><head><title>%[1]s</title><link rel="icon" href="data:,"><meta name="viewport" content="width=device-width">
<style>body{background:#fff;color:#000}@media (prefers-color-scheme:dark){body{background:#000;color:#fff}a{color:#9cf}}</style></head>
<body><main><h1>%[1]s</h1>%[2]s</main></body></html>`

var pages = map[string]string{
	"/":       `<p><a id="next" href="/next">on</a></p>`,
	"/next":   `<p id="say">none</p><script>document.getElementById("say").textContent = "script"</script>`,
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

func TestBrowser(t *testing.T) {
	b, url := browser.Start(t), serve(t)
	t.Run("page", func(t *testing.T) { testPage(t, b, url) })
	t.Run("trouble", func(t *testing.T) { testTrouble(t, b, url) })
}

// A page is opened, followed by mouse and by keyboard, read and pictured, with and without script.
func testPage(t *testing.T, b *browser.Browser, url string) {
	for _, o := range []browser.Options{{}, {NoScript: true, Dark: true, Width: 320}} {
		t.Run(fmt.Sprintf("%+v", o), func(t *testing.T) {
			p := b.Page(t, o)
			if status := p.Open(url + "/"); status != http.StatusOK || p.Text("h1") != "Page /" {
				t.Errorf("status %d, %q", status, p.Text("h1"))
			}
			if status := p.Follow("#next"); status != http.StatusOK || p.Address() != url+"/next" {
				t.Errorf("status %d at %s", status, p.Address())
			}
			want := "script"
			if o.NoScript {
				want = "none"
			}
			if got := p.Text("#say"); got != want {
				t.Errorf("%q, want %q", got, want)
			}
			p.Open(url + "/")
			p.TabTo("#next")
			if p.FollowKey("\r"); p.Address() != url+"/next" {
				t.Errorf("the keyboard leads to %s", p.Address())
			}
			if o.Width > 0 && browser.Eval[int](p, "innerWidth") != o.Width {
				t.Errorf("the window is %d wide", browser.Eval[int](p, "innerWidth"))
			}
			if got := browser.Eval[string](p, "getComputedStyle(document.body).color"); (got == "rgb(255, 255, 255)") != o.Dark {
				t.Errorf("text has the colour %s", got)
			}
			if picture := p.Shoot(); !strings.HasPrefix(string(picture), "\x89PNG") {
				t.Errorf("the picture begins with %.8q", picture)
			}
			if trouble := p.Trouble(); len(trouble) > 0 {
				t.Error(trouble)
			}
			if status := p.Open(url + "/none"); status != http.StatusNotFound {
				t.Errorf("status %d", status)
			}
		})
	}
}

// Whatever a page does that it should not is heard, and axe-core is asked.
func testTrouble(t *testing.T, b *browser.Browser, url string) {
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

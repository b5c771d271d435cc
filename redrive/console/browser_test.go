package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	neturl "net/url"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/browser"
	"github.com/watermill-spillway/spillway/poison"
)

// serve returns the address of the console.
func (b *bench) serve() string {
	server := httptest.NewServer(b.console)
	b.t.Cleanup(server.Close)
	return server.URL
}

// An incident fills a bench with letters of several causes, and one with all that a page can show.
func (b *bench) incident() {
	b.park()
	b.standing()
	b.fill(3, 60)
	fixture.Publish(b.t, b.store, "orders.dlq", fixture.Letter("order-4711", `{"order":4711,"customer":{"name":"Zoë","vip":true,"tags":["new","näher",null]},"lines":[{"sku":"A-1","amount":12345678901234567890.10},{"sku":"A-2","amount":1}],"card":{"token":"tok_1234567890"}}`,
		func(l *poison.Letter) {
			at := time.Now().UTC().Add(-5 * time.Minute)
			l.Failure.Stack = crash + "main.main()\n\t/home/ann/shop/main.go:8 +0x11\n"
			l.Failure.Description, l.Failure.Reason, l.Failure.Type = "panic: runtime error: index out of range [3] with length 3", "panic", "*classify.PanicError > runtime.boundsError"
			l.Origin.Partition, l.Origin.Offset, l.Origin.Key, l.Origin.Timestamp = "3", "4711", []byte("customer-17"), at.Add(-time.Minute)
			l.Failure.FirstFailedAt, l.Failure.LastFailedAt = at, at.Add(70*time.Second)
			l.Failure.History = []classify.Attempt{{At: at, Class: classify.ClassTransient, Error: "dial tcp 10.0.0.7:443: connect: connection refused"},
				{At: at.Add(5 * time.Second), Class: classify.ClassTransient, Error: "dial tcp 10.0.0.7:443: connect: connection refused"},
				{At: at.Add(70 * time.Second), Class: classify.ClassPermanent, Error: "panic: runtime error: index out of range [3] with length 3"}}
			l.Original.Metadata.Set("correlation_id", "7f0c2b1e-5a44-4f6e-9f55-2f9d3c0b8a11")
			l.Original.Metadata.Set("authorization", "Bearer abcdefghijklmnop")
		}))
}

// browsed are the paths of all pages that a person can look at, of the table of rights, and one that is not there.
func (b *bench) browsed() (paths []string) {
	for _, row := range rights {
		if row.method != http.MethodGet {
			continue
		}
		p := b.get(row.path)
		if p.StatusCode == http.StatusOK && strings.HasPrefix(p.Header.Get("Content-Type"), "text/html") {
			paths = append(paths, row.path)
		}
	}
	return append(paths, "/nowhere", "/letters?text=nothing")
}

// One browser does for all: starting it takes longer than most of the tests.
func TestInBrowser(t *testing.T) {
	engine := browser.Start(t)
	for name, test := range map[string]func(*testing.T, *browser.Browser){
		"pages": testPages, "hostile values": testHostileValues, "letters": testLetters, "letter": testLetterPage, "phone": testPhone,
		"campaign moves": testCampaignMoves, "wrong field": testWrongField, "fleet": testFleetPage, "week": testWeek,
	} {
		t.Run(name, func(t *testing.T) { test(t, engine) })
	}
}

// fits fails the test if a page is wider than its window.
func fits(t *testing.T, p *browser.Page, where string) {
	t.Helper()
	wide, window := browser.Eval[int](p, "document.documentElement.scrollWidth"), browser.Eval[int](p, "innerWidth")
	testkit.Check(t, wide <= window, "%s is %d wide in a window of %d", where, wide, window)
}

// clean fails the test if a page has a fault that axe-core knows.
func clean(t *testing.T, p *browser.Page, where string) {
	t.Helper()
	for _, found := range p.Axe() {
		t.Errorf("%s: %s", where, found)
	}
}

// quiet fails the test if the browser had trouble other than an answer with a status.
func quiet(t *testing.T, p *browser.Page, status string) {
	t.Helper()
	for _, trouble := range p.Trouble() {
		testkit.Check(t, strings.Contains(trouble, "status of "+status), "%s", trouble)
	}
}

// Feature V11: no page has a fault that axe-core knows, or is wider than its window. Of light ones a few are asked.
func testPages(t *testing.T, engine *browser.Browser) {
	b := newBench(t)
	b.incident()
	url := b.serve()
	paths := append(b.browsed(), "/letters/61", "/letters/61?view=hex", "/sequences/3")
	for _, size := range []browser.Options{{Width: 320, Dark: true}, {}} {
		t.Run(fmt.Sprint(size), func(t *testing.T) { // one tab at a time: pages go on asking for what is new
			p := engine.Page(t, size)
			for i, path := range paths {
				p.Open(url + path)
				if fits(t, p, path); size.Dark || i%5 == 0 {
					clean(t, p, path)
				}
			}
			quiet(t, p, "404")
		})
	}
}

// Feature V11: whatever letters carry, a browser runs nothing of it, and asks no other host.
func testHostileValues(t *testing.T, engine *browser.Browser) {
	b := newBench(t)
	b.infest()
	url := b.serve()
	paths := append(b.browsed(), "/letters?text="+neturl.QueryEscape(hostile[1]), "/letters?handler="+neturl.QueryEscape(hostile[2]))
	for i, text := range hostile { // the others are text to a browser
		if strings.ContainsAny(text, `<:{`) || strings.Contains(text, "\u202e") {
			paths = append(paths, fmt.Sprintf("/letters/%d?view=text", i+1))
		}
	}
	p := engine.Page(t, browser.Options{Width: 320})
	for _, path := range paths {
		p.Open(url + path)
		title := browser.Eval[string](p, "document.title")
		testkit.Check(t, !strings.Contains(title, "mark"), "%s has the title %q", path, title)
		fits(t, p, path)
		foreign := browser.Eval[int](p, `document.querySelectorAll("script:not([src]), style, iframe, object, embed, base, `+
			`[onload], [onerror], [style], img, a[href^='javascript:'], a[href^='data:']").length`)
		testkit.Check(t, foreign == 0, "%s has %d elements that no page has", path, foreign)
	}
	quiet(t, p, "40")
}

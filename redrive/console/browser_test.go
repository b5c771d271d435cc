package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	neturl "net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/browser"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
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

// shot writes a picture of a page into the folder of SPILLWAY_SHOTS, if there is one.
func shot(t *testing.T, p *browser.Page, name string) {
	t.Helper()
	folder := os.Getenv("SPILLWAY_SHOTS")
	if folder == "" {
		return
	}
	testkit.NoError(t, os.WriteFile(filepath.Join(folder, name+".png"), p.Shoot(), 0o644))
}

// browsed are the paths of all pages of a Console that a person can look at, of the table by which the rights are
// tested.
func (b *bench) browsed() (paths []string) {
	for _, row := range rights {
		if row.method == http.MethodGet && strings.HasPrefix(b.get(row.path).Header.Get("Content-Type"), "text/html") {
			paths = append(paths, row.path)
		}
	}
	return append(paths, "/nowhere", "/letters?text=nothing")
}

// One browser does for all: starting it takes longer than most of the tests.
func TestInBrowser(t *testing.T) {
	engine := browser.Start(t)
	for name, test := range map[string]func(*testing.T, *browser.Browser){
		"pages": testPages, "hostile values": testHostileValues, "letters": testLetters, "phone": testPhone,
		"campaign moves": testCampaignMoves, "discard goes on": testDiscardGoesOn, "wrong field": testWrongField, "sequences": testSequences,
		"fleet": testFleetPage,
	} {
		t.Run(name, func(t *testing.T) { test(t, engine) })
	}
}

// Feature V11: no page has a fault that axe-core knows, dark or light, on a telephone or on a desk, and none is wider
// than its window.
func testPages(t *testing.T, engine *browser.Browser) {
	b := newBench(t)
	b.incident()
	url := b.serve()
	paths := append(b.browsed(), "/letters/61", "/letters/61?view=hex")
	for _, width := range []int{320, 1280, 3840} {
		for _, dark := range []bool{false, true} {
			if os.Getenv("SPILLWAY_SHOTS") == "" && (width == 3840 || dark != (width == 320)) {
				continue // each scheme once, and each shape once
			}
			t.Run(fmt.Sprintf("%d dark %v", width, dark), func(t *testing.T) {
				p := engine.Page(t, browser.Options{Width: width, Dark: dark})
				for i, path := range paths {
					p.Open(url + path)
					if dark || i%3 == 0 { // one style makes all pages light
						for _, found := range p.Axe() {
							t.Errorf("%s: %s", path, found)
						}
					}
					if wide := browser.Eval[int](p, "document.documentElement.scrollWidth"); wide > width {
						t.Errorf("%s is %d wide in a window of %d", path, wide, width)
					}
					shot(t, p, fmt.Sprintf("%s-%d-%v", strings.Trim(strings.NewReplacer("/", "-", "?", "-", "=", "-").Replace(path), "-"), width, dark))
				}
				for _, trouble := range p.Trouble() {
					if !strings.Contains(trouble, "status of 404") {
						t.Error(trouble)
					}
				}
			})
		}
	}
}

// Feature V11: whatever letters, persons and campaigns carry, a browser opens no dialog, runs nothing of it, asks no
// other host, and has nothing that the policy of the page refuses.
func testHostileValues(t *testing.T, engine *browser.Browser) {
	b := newBench(t)
	b.infest()
	url := b.serve()
	paths := b.browsed()
	for i := range hostile {
		paths = append(paths, fmt.Sprintf("/letters/%d?view=text", i+1))
	}
	paths = append(paths, "/letters?text="+neturl.QueryEscape(hostile[1]), "/letters?handler="+neturl.QueryEscape(hostile[2]))
	p := engine.Page(t, browser.Options{Width: 320})
	for _, path := range paths {
		p.Open(url + path)
		if title := browser.Eval[string](p, "document.title"); strings.Contains(title, "mark") {
			t.Errorf("%s has the title %q", path, title)
		}
		if wide := browser.Eval[int](p, "document.documentElement.scrollWidth"); wide > 320 {
			t.Errorf("%s is %d wide in a window of 320", path, wide)
		}
		if n := browser.Eval[int](p, `document.querySelectorAll("script:not([src]), style, iframe, object, embed, base, [onload], [onerror], [style], img, a[href^='javascript:'], a[href^='data:']").length`); n > 0 {
			t.Errorf("%s has %d elements that no page has", path, n)
		}
	}
	for _, trouble := range p.Trouble() {
		if !strings.Contains(trouble, "status of 40") {
			t.Error(trouble)
		}
	}
}

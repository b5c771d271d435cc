package main

import (
	"database/sql"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/browser"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// hand is how a person uses a page.
type hand struct {
	p      *browser.Page
	follow func(selector string) int
	write  func(selector, text string)
}

func byMouse(p *browser.Page) hand { return hand{p, p.Follow, p.Type} }

func byKeyboard(p *browser.Page) hand {
	return hand{p, func(selector string) int {
		p.TabTo(selector)
		return p.FollowKey("\r")
	}, func(selector, text string) {
		p.TabTo(selector)
		p.Key(text)
	}}
}

// Feature V11: a person closes the incident from the overview to the verdict, with and without script, and by keyboard
// alone.
func TestIncident(t *testing.T) {
	engine := browser.Start(t)
	for name, way := range map[string]struct {
		options browser.Options
		hand    func(*browser.Page) hand
	}{
		"mouse, without script": {browser.Options{NoScript: true, Width: 320}, byMouse},
		"keyboard":              {browser.Options{Dark: true}, byKeyboard},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, url := serveDemo(t, time.Hour)
			p := engine.Page(t, way.options)
			closeIncident(t, way.hand(p), s, url, !way.options.NoScript)
			for _, trouble := range p.Trouble() {
				if !strings.Contains(trouble, "favicon.ico") { // of the demo's own page, which has no icon
					t.Error(trouble)
				}
			}
		})
	}
}

// serveDemo is the demo, with the letters that its first webhooks give, and those of one more each time.
func serveDemo(t *testing.T, every time.Duration) (*service, *sql.DB, string) {
	t.Helper()
	db, cleanUp, err := openDatabase()
	testkit.NoError(t, err)
	t.Cleanup(func() {
		if err := cleanUp(); err != nil {
			t.Error(filepath.Base(t.Name()), err)
		}
	})
	s := testkit.Must(newService(t.Context(), db, 1))
	handler := testkit.Must(s.pages())
	stop := testkit.Must(s.start(t.Context()))
	t.Cleanup(func() { testkit.NoError(t, stop()) })
	t.Cleanup(s.receive(t.Context(), every))
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	waits := func() int {
		return testkit.Must(hidden.Of(s.campaigns).Store().Count(t.Context(), letters.Filter{}))
	}
	testkit.Eventually(t, "letters", func() bool { return waits() >= 5 })
	return s, db, server.URL + "/"
}

// closeIncident plays the person on call.
func closeIncident(t *testing.T, h hand, s *service, url string, script bool) {
	t.Helper()
	h.p.Open(url)
	h.follow("a[href='deadletters/']")
	if h.follow("table a[href*='cause=']"); !strings.HasPrefix(h.p.Text("h1"), "Letters") {
		t.Fatalf("a cause leads to %q", h.p.Text("h1"))
	}
	if h.follow("tbody a[href*='letters/']"); !strings.HasPrefix(h.p.Text("h1"), "Letter ") || h.p.Text(".payload") == "" {
		t.Fatalf("a letter leads to %q", h.p.Text("h1"))
	}
	h.p.Open(url)
	if h.follow("button"); !strings.Contains(h.p.Text("p"), "is fixed") {
		t.Fatalf("after the fix: %s", h.p.Text("p"))
	}
	h.follow("a[href='deadletters/']")
	h.follow("table a[href*='cause=']")
	h.follow("button[formaction*='redrive']:not([data-needs])")
	testkit.Require(t, h.p.Text("h1") == "Redrive", "the button leads to %q", h.p.Text("h1"))
	h.write("input[name='reason']", "INC-7 is repaired")
	status := h.follow("button[value='start']")
	testkit.Require(t, status == 200, "status %d: %s", status, h.p.Text("main"))
	id := h.p.Address()[strings.LastIndex(h.p.Address(), "/")+1:]
	testkit.Eventually(t, "the verdict", func() bool {
		if !script { // with a script the page moves by itself
			h.p.Open(h.p.Address())
		}
		return browser.Eval[bool](h.p, "document.querySelector('[data-done]') !== null")
	}, func() string { return h.p.Text("main") })
	var c campaigns.Campaign
	testkit.Eventually(t, "what became of the letters", func() bool { // it is learned in rounds
		c = testkit.Must(s.campaigns.Get(t.Context(), id))
		return c.Succeeded+c.FailedAgain == c.Selected
	}, func() string { return fmt.Sprintf("%+v", c) })
	testkit.Check(t, c.State == campaigns.Finished && c.Selected != 0 && c.Succeeded == c.Selected &&
		c.Request.By == "ann" && c.Request.Reason == "INC-7 is repaired", "%+v", c)
	h.p.Open(h.p.Address())
	page := strings.Join(strings.Fields(h.p.Text("main")), " ")
	testkit.Check(t, strings.Contains(page, "INC-7 is repaired") &&
		strings.Contains(page, fmt.Sprintf("succeeded %d", c.Succeeded)), "the verdict: %s", page)
	if script {
		for _, found := range h.p.Axe() {
			t.Errorf("the page of the campaign: %s", found)
		}
	}
}

package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/browser"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const (
	brokenNames = `[...document.querySelectorAll("td[data-label=Topic] bdi, td[data-label=Handler] bdi, td[data-label=Reason] bdi")].filter((e) => e.getClientRects().length > 1).map((e) => e.textContent)`
	// inView reports whether a button can be pressed without scrolling.
	inView = `(() => { const b = document.querySelector("%s"), r = b.getBoundingClientRect(); return r.top >= 0 && r.bottom <= innerHeight && !b.disabled; })()`
)

// Feature V11: on a desk no short name of the list is broken, also in each column. On a telephone the buttons for
// chosen letters are in sight as soon as a letter is chosen, with script and without. No page is wider than its window.
func testLetters(t *testing.T, engine *browser.Browser) {
	b := newBench(t)
	b.incident()
	url := b.serve()
	desk := engine.Page(t, browser.Options{})
	for _, query := range []string{"", "?rows=500&column=seq&column=last&column=handler&column=topic&column=reason&column=description&column=status&column=type&column=size"} {
		desk.Open(url + "/letters" + query)
		if names := browser.Eval[[]string](desk, brokenNames); len(names) > 0 {
			t.Errorf("%s breaks %q", query, names)
		}
		if wide := browser.Eval[int](desk, "document.documentElement.scrollWidth"); wide > 1280 {
			t.Errorf("%s is %d wide", query, wide)
		}
		shot(t, desk, fmt.Sprintf("letters-desk-%d", len(query)))
	}
	for _, noScript := range []bool{false, true} {
		phone := engine.Page(t, browser.Options{Width: 390, Height: 844, NoScript: noScript})
		phone.Open(url + "/letters")
		phone.Click("input[name=seq]")
		for _, button := range []string{"redrive", "discard"} {
			if !browser.Eval[bool](phone, fmt.Sprintf(inView, "button[data-needs][formaction*="+button+"], .chosen button[formaction*="+button+"]")) {
				t.Errorf("no script: %v: the button to %s a chosen letter is out of sight", noScript, button)
			}
		}
		if wide := browser.Eval[int](phone, "document.documentElement.scrollWidth"); wide > 390 {
			t.Errorf("the list is %d wide in a window of 390", wide)
		}
		if !noScript {
			for _, found := range phone.Axe() {
				t.Error(found)
			}
		}
		shot(t, phone, fmt.Sprintf("letters-phone-%v", noScript))
	}
}

// Feature V11: the first screen of a telephone says what waits and what is new, and has what to do about it within reach of
// a thumb, as the way to all other pages is.
func testPhone(t *testing.T, engine *browser.Browser) {
	b := newBench(t)
	now := time.Now() // what is new stays so, however slow the machine is
	b.console.now = func() time.Time { return now }
	b.incident()
	fixture.Publish(t, b.store, "orders.dlq", fixture.Several(3)...)
	url := b.serve()
	phone := engine.Page(t, browser.Options{Width: 390, Height: 844})
	for _, path := range []string{"/", "/causes"} {
		phone.Open(url + path)
		for _, seen := range []string{".badge.new", "td a.button[href*='redrive?']", "header nav a[href$='/audit']"} {
			if !browser.Eval[bool](phone, fmt.Sprintf(inView, seen)) {
				t.Errorf("%s is not on the first screen of %s", seen, path)
			}
		}
		if top := browser.Eval[float64](phone, `document.querySelector("header nav").getBoundingClientRect().top`); top < 844/2 {
			t.Errorf("the way to other pages is at %v, out of reach of a thumb", top)
		}
		small := browser.Eval[[]string](phone, `[...document.querySelectorAll("button, .button, nav a")].filter((e) => e.getClientRects().length && e.getBoundingClientRect().height < 44).map((e) => e.textContent)`)
		if wide := browser.Eval[int](phone, "document.documentElement.scrollWidth"); wide > 390 || len(small) > 0 {
			t.Errorf("%s is %d wide, and these are too low for a thumb: %q", path, wide, small)
		}
		for _, found := range phone.Axe() {
			t.Errorf("%s: %s", path, found)
		}
	}
}

// Feature V11: while a person looks at the page of a campaign, its actions become those of its new state. What the
// person types into a form that is still there stays.
func testCampaignMoves(t *testing.T, engine *browser.Browser) {
	b := newBench(t)
	b.fill(3, 40)
	one := b.started(campaigns.Request{Rate: 1})
	url := b.serve()
	p := engine.Page(t, browser.Options{})
	p.Open(url + "/campaigns/" + one.ID)
	shot(t, p, "campaign-running")
	typed := "form[action$='/rate'] input[name=reason]"
	p.Type(typed, "the shop is slow")
	if !strings.Contains(p.Text("main"), "time left") {
		t.Errorf("no time is left: %s", p.Text("main"))
	}
	// the campaign pauses itself
	testkit.Must(b.campaigns.Pause(t.Context(), one.ID, campaigns.Act{By: campaigns.ByItself, Reason: "too many letters failed again"}))
	testkit.Eventually(t, "the actions are those of a campaign that stands", func() bool {
		return browser.Eval[bool](p, `!document.querySelector("form[action$='/pause']") && !!document.querySelector("form[action$='/resume']")`)
	}, func() string { return p.Text("main") })
	if got := browser.Eval[string](p, `document.querySelector("`+typed+`").value`); got != "the shop is slow" {
		t.Errorf("what was typed became %q", got)
	}
	if focus := browser.Eval[bool](p, `document.activeElement === document.querySelector("`+typed+`")`); !focus {
		t.Error("the focus is lost")
	}
	if page := p.Text("main"); strings.Contains(page, "time left") || !strings.Contains(page, "too many letters failed again") {
		t.Errorf("the page of a campaign that stands: %s", page)
	}
	for _, found := range p.Axe() {
		t.Error(found)
	}
	shot(t, p, "campaign-paused")
	p.Type("form[action$='/resume'] input[name=reason]", "the shop is quick again")
	if status := p.Follow("form[action$='/resume'] button"); status != http.StatusOK || !strings.Contains(p.Text("main"), "Workers of the service publish the letters. If nothing moves, no instance runs a worker.") {
		t.Errorf("status %d: %s", status, p.Text("main"))
	}
	for _, trouble := range p.Trouble() {
		t.Error(trouble)
	}
}

// status notes the status of an answer.
type status struct {
	http.ResponseWriter
	code int
}

func (s *status) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}

// Unwrap lets http.ResponseController reach the connection.
func (s *status) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Feature V11, decision 23: a discard that takes several requests goes on by itself, if there is a script. Looking at
// what it did does not go on with it.
func testDiscardGoesOn(t *testing.T, engine *browser.Browser) {
	b := newBench(t)
	const many = 2_000
	b.several(many)
	var posts, parts atomic.Int64
	var one sync.Mutex // requests come one after the other
	ended := make(chan struct{}, 10)
	b.console.step = time.Millisecond
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		one.Lock()
		defer one.Unlock()
		answer := &status{ResponseWriter: w}
		b.console.ServeHTTP(answer, r)
		switch {
		case r.Method == http.MethodPost && answer.code == http.StatusServiceUnavailable: // too short for one transaction on this machine
			b.console.step *= 2
		case r.Method == http.MethodPost && answer.code == http.StatusOK:
			parts.Add(1)
			b.console.step = time.Minute
		case strings.HasPrefix(r.URL.Path, "/discards/"):
			ended <- struct{}{}
		}
		if r.Method == http.MethodPost {
			posts.Add(1)
		}
	}))
	t.Cleanup(server.Close)
	p := engine.Page(t, browser.Options{})
	for parts.Load() == 0 { // all at once, if the machine stood still and then did not
		b.mark(fixture.Status(letters.StatusDiscarded), letters.StatusWaiting)
		p.Open(server.URL + "/discard?" + b.everything())
		p.Type("input[name=reason]", "INC-7")
		for p.Follow("button.danger") == http.StatusServiceUnavailable {
		}
		testkit.Receive(t, "the page of all that was discarded", ended)
	}
	testkit.Eventually(t, "it is shown", func() bool { return strings.Contains(p.Address(), "/discards/") })
	if said := p.Text("main"); !strings.Contains(said, say(discards.Done, many)) || b.truth(fixture.Status(letters.StatusDiscarded)) != many {
		t.Errorf("%d are discarded, and the page says %s", b.truth(fixture.Status(letters.StatusDiscarded)), said)
	}
	shot(t, p, "discard-end")
	before := posts.Load()
	p.Open(p.Address())
	if len(p.Axe()) > 0 || posts.Load() != before {
		t.Errorf("%d forms were sent by looking", posts.Load()-before)
	}
}

// Feature V11: the browser goes to a field that is wrong, with what is wrong next to it.
func testWrongField(t *testing.T, engine *browser.Browser) {
	b := newBench(t)
	b.incident()
	p := engine.Page(t, browser.Options{Width: 390, Height: 844})
	p.Open(b.serve() + "/redrive?" + b.everything())
	shot(t, p, "redrive")
	p.Type("input[name='stop-at']", "101")
	p.Type("input[name='reason']", "INC-7")
	if status := p.Follow("button[value='start']"); status != http.StatusBadRequest {
		t.Fatalf("status %d: %s", status, p.Text("main"))
	}
	testkit.Eventually(t, "the focus is on the field", func() bool { // the browser moves it after the page is there
		return browser.Eval[bool](p, "document.activeElement.name === 'stop-at'")
	})
	if said := p.Text("#wrong-stop-at"); said != "A share has at most 100 percent. 100 never pauses." {
		t.Errorf("the field says %q", said)
	}
	for _, found := range p.Axe() {
		t.Error(found)
	}
	shot(t, p, "redrive-wrong")
}

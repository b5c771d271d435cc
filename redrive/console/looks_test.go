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

	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/browser"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const (
	brokenNames = `[...document.querySelectorAll("td[data-label=Topic] bdi, td[data-label=Handler] bdi, ` +
		`td[data-label=Reason] bdi")].filter((e) => e.getClientRects().length > 1).map((e) => e.textContent)`
	// inView reports whether a button can be pressed without scrolling.
	inView = `(() => { const b = document.querySelector("%s"), r = b.getBoundingClientRect(); ` +
		`return r.top >= 0 && r.bottom <= innerHeight && !b.disabled; })()`
	allColumns = "?rows=500&column=seq&column=last&column=handler&column=topic&column=reason&column=description" +
		"&column=status&column=type&column=size"
)

func onPhone(noScript bool) browser.Options {
	return browser.Options{Width: 390, Height: 844, NoScript: noScript}
}

// Feature V11: no short name of the list is broken, and on a telephone the buttons for chosen letters are in sight.
func testLetters(t *testing.T, engine *browser.Browser) {
	b := newBench(t)
	b.incident()
	url := b.serve()
	desk := engine.Page(t, browser.Options{})
	for _, query := range []string{"", allColumns} {
		desk.Open(url + "/letters" + query)
		names := browser.Eval[[]string](desk, brokenNames)
		testkit.Check(t, len(names) == 0, "%s breaks %q", query, names)
		fits(t, desk, query)
	}
	for _, noScript := range []bool{false, true} {
		phone := engine.Page(t, onPhone(noScript))
		phone.Open(url + "/letters")
		phone.Click("input[name=seq]")
		for _, act := range []string{"redrive", "discard"} {
			button := fmt.Sprintf("button[data-needs][formaction*=%s], .chosen button[formaction*=%[1]s]", act)
			testkit.Check(t, browser.Eval[bool](phone, fmt.Sprintf(inView, button)),
				"no script: %v: the button to %s a chosen letter is out of sight", noScript, act)
		}
		fits(t, phone, "the list on a telephone")
		if !noScript {
			clean(t, phone, "the list on a telephone")
		}
	}
}

// Feature V11: the first screen of a telephone says what is new, and has what to do about it in reach of a thumb.
func testPhone(t *testing.T, engine *browser.Browser) {
	b := newBench(t)
	now := time.Now() // what is new stays so, however slow the machine is
	b.console.now = func() time.Time { return now }
	b.incident()
	fixture.Publish(t, b.store, "orders.dlq", fixture.Several(3)...)
	url := b.serve()
	phone := engine.Page(t, onPhone(false))
	for _, path := range []string{"/", "/causes"} {
		phone.Open(url + path)
		for _, seen := range []string{".badge.new", "td a.button[href*='redrive?']", "header nav a[href$='/audit']"} {
			testkit.Check(t, browser.Eval[bool](phone, fmt.Sprintf(inView, seen)),
				"%s is not on the first screen of %s", seen, path)
		}
		top := browser.Eval[float64](phone, `document.querySelector("header nav").getBoundingClientRect().top`)
		testkit.Check(t, top >= 844/2, "the way to other pages is at %v, out of reach of a thumb", top)
		small := browser.Eval[[]string](phone, `[...document.querySelectorAll("button, .button, nav a")].filter((e) => `+
			`e.getClientRects().length && e.getBoundingClientRect().height < 44).map((e) => e.textContent)`)
		testkit.Check(t, len(small) == 0, "on %s these are too low for a thumb: %q", path, small)
		fits(t, phone, path)
		clean(t, phone, path)
	}
}

// Feature V11: the actions of a campaign follow its state under the eyes of a person, whose typing stays.
func testCampaignMoves(t *testing.T, engine *browser.Browser) {
	b := newBench(t)
	b.fill(3, 40)
	one := b.started(campaigns.Request{Rate: 1})
	p := engine.Page(t, browser.Options{})
	p.Open(b.serve() + "/campaigns/" + one.ID)
	typed := "form[action$='/rate'] input[name=reason]"
	p.Type(typed, "the shop is slow")
	testkit.Check(t, strings.Contains(p.Text("main"), "time left"), "no time is left: %s", p.Text("main"))
	// the campaign pauses itself
	stopped := campaigns.Act{By: campaigns.ByItself, Reason: "too many letters failed again"}
	testkit.Must(b.campaigns.Pause(t.Context(), one.ID, stopped))
	testkit.Eventually(t, "the actions are those of a campaign that stands", func() bool {
		return browser.Eval[bool](p, `!document.querySelector("form[action$='/pause']") && !!document.querySelector("form[action$='/resume']")`)
	}, func() string { return p.Text("main") })
	got := browser.Eval[string](p, `document.querySelector("`+typed+`").value`)
	testkit.Check(t, got == "the shop is slow", "what was typed became %q", got)
	focus := browser.Eval[bool](p, `document.activeElement === document.querySelector("`+typed+`")`)
	testkit.Check(t, focus, "the focus is lost")
	page := p.Text("main")
	testkit.Check(t, !strings.Contains(page, "time left") && strings.Contains(page, stopped.Reason),
		"the page of a campaign that stands: %s", page)
	clean(t, p, "the page of a campaign that stands")
	p.Type("form[action$='/resume'] input[name=reason]", "the shop is quick again")
	status := p.Follow("form[action$='/resume'] button")
	testkit.Check(t, status == http.StatusOK && strings.Contains(p.Text("main"), "If nothing moves, no instance runs a worker."),
		"status %d: %s", status, p.Text("main"))
	quiet(t, p, "none")
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

// Feature V11, decision 23: a discard of several requests goes on by itself with a script, and not by looking at it.
func testDiscardResumed(t *testing.T, engine *browser.Browser) {
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
		case strings.HasPrefix(r.URL.Path, "/discards/"):
			ended <- struct{}{}
			return
		case r.Method != http.MethodPost:
			return
		case answer.code == http.StatusServiceUnavailable: // too short for one transaction on this machine
			b.console.step *= 2
		case answer.code == http.StatusOK:
			parts.Add(1)
			b.console.step = time.Minute
		}
		posts.Add(1)
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
	said, n := p.Text("main"), b.truth(fixture.Status(letters.StatusDiscarded))
	testkit.Check(t, strings.Contains(said, say(discards.Done, many)) && n == many, "%d are discarded, and the page says %s", n, said)
	before := posts.Load()
	p.Open(p.Address())
	testkit.Check(t, posts.Load() == before, "%d forms were sent by looking", posts.Load()-before)
}

// Feature V11: the browser goes to a field that is wrong, with what is wrong next to it.
func testWrongField(t *testing.T, engine *browser.Browser) {
	b := newBench(t)
	b.incident()
	p := engine.Page(t, onPhone(false))
	p.Open(b.serve() + "/redrive?" + b.everything())
	p.Type("input[name='stop-at']", "101")
	p.Type("input[name='reason']", "INC-7")
	testkit.Equal(t, "the status", p.Follow("button[value='start']"), http.StatusBadRequest)
	testkit.Eventually(t, "the focus is on the field", func() bool { // the browser moves it after the page is there
		return browser.Eval[bool](p, "document.activeElement.name === 'stop-at'")
	})
	testkit.Equal(t, "the field", p.Text("#wrong-stop-at"), "A share has at most 100 percent. 100 never pauses.")
	clean(t, p, "a field that is wrong")
}

// Feature V11: on paper a letter has no buttons.
func testLetterPage(t *testing.T, engine *browser.Browser) {
	b := newBench(t)
	b.incident()
	address := b.serve() + "/letters/" + id(testkit.Must(b.store.Heads(t.Context(), letters.Filter{IDs: []string{"order-4711"}}))[0].Seq)
	page := engine.Page(t, browser.Options{})
	page.Open(address)
	page.Print()
	printed := browser.Eval[[]string](page, `[...document.querySelectorAll("button, .button, .actions, .tabs, nav a")]`+
		`.filter((e) => e.getClientRects().length).map((e) => e.textContent)`)
	testkit.Check(t, len(printed) == 0, "printed: %q", printed)
}

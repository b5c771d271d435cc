package console

import (
	"fmt"
	"net/http"
	"strings"
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
	for _, query := range []string{"", "?rows=500&status=all"} {
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

package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/browser"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V16: a form changes what it has otherwise than the note that the person saw, with a reason. What is wrong with
// a field stands beside it, and what was typed stays.
func TestNotes(t *testing.T) {
	b := newBench(t)
	fixture.Publish(t, b.store, "orders.dlq", fixture.Several(3)...)
	cause := testkit.Must(b.store.Groups(t.Context(), letters.Filter{}))[0].Cause
	page := "/letters?cause=" + cause
	b.get(page, as(Look)).wantNot(t, "Work on this cause")
	form := b.get(page).want(t, http.StatusOK, "Work on this cause").fields(t)
	send := func(status int, says string, form url.Values, change ...func(*http.Request)) url.Values {
		t.Helper()
		p := b.post("/causes/"+cause, form, change...)
		if status == http.StatusSeeOther {
			p.want(t, status)
			return b.get(page).fields(t)
		}
		p.want(t, status, says, `value="ann`)
		return nil
	}
	take := with(form, "owner", "ann", "note", "card 4111 1111 1111 1111 <b>", "reason", "INC-7")
	send(400, "The reason is empty", with(take, "reason", " "))
	send(400, "It is &#34;javascript:alert(1)&#34;", with(take, "link", "javascript:alert(1)"))
	send(400, "It is &#34;yesterday&#34;", with(take, "snooze", "yesterday"))
	send(400, "within 90 days", with(take, "snooze", "91d"))
	send(400, "It has 101 bytes", with(take, "owner", "ann"+strings.Repeat("x", 98)))
	b.post("/causes/"+cause, take, as(Look)).want(t, http.StatusForbidden)
	b.post("/causes/"+strings.Repeat("0", 32), with(form, "owner", "ann", "reason", "INC-7")).want(t, http.StatusNotFound)
	taken := send(303, "", take)
	testkit.Check(t, taken.Get("owner") == "ann" && !strings.Contains(taken.Get("note"), "4111"), "%v", taken)
	send(409, "Another person changed the note meanwhile", with(take, "owner", "anna", "reason", "INC-8"))
	snoozed := send(303, "", with(taken, "snooze", "2d", "link", "https://tickets/7", "reason", "known until tomorrow"))
	note := testkit.Must(hidden.Of(b.store).Notes(t.Context()))[cause]
	testkit.Check(t, note.Snoozed && strings.Contains(note.Note, "4111") && note.Link == "https://tickets/7", "what was not changed is: %+v", note)
	b.get("/causes").want(t, http.StatusOK, "Snoozed until", `<a href="https://tickets/7" rel="noopener noreferrer">`, "&lt;b&gt;")
	b.get("/").want(t, http.StatusOK, "Snoozed causes")
	send(303, "", with(snoozed, "snooze", "", "reason", "it is repaired"))
	b.get("/").wantNot(t, "Snoozed causes")
	b.get("/audit?kind=cause").want(t, http.StatusOK, "known until tomorrow", "it is repaired")
}

// Feature V16: a team's week. A cause comes, ann takes it with a ticket and snoozes it, it grows and wakes, is repaired and
// redriven, and comes again as known.
func testWeek(t *testing.T, engine *browser.Browser) {
	b := newBench(t)
	letters := fixture.Several(20)
	arrive := func(some ...*message.Message) { fixture.Publish(t, b.store, "orders.dlq", some...) }
	arrive(letters[:2]...)
	p, url := engine.Page(t, browser.Options{}), b.serve()
	p.Open(url + "/causes")
	p.Follow("td a")
	p.Click("#work summary")
	for name, text := range map[string]string{"owner": "ann", "note": "the ledger is slow", "link": "https://tickets/7", "snooze": "1d", "reason": "INC-7"} {
		p.Type("#work input[name="+name+"]", text)
	}
	clean(t, p, "the form of a cause")
	status := p.Follow("#work button")
	says := func(want bool, path string, texts ...string) {
		t.Helper()
		if path != "" {
			p.Open(url + path)
		}
		for _, text := range texts {
			testkit.Check(t, strings.Contains(p.Text("main"), text) == want, "of %q, which is to be there: %v, %s says: %s", text, want, p.Address(), p.Text("main"))
		}
	}
	testkit.Equal(t, "the status", status, http.StatusOK)
	says(true, "", "Snoozed until", "by ann", "owner ann", "the ledger is slow", "https://tickets/7")
	says(true, "/", "Snoozed causes", "Snoozed until")
	clean(t, p, "the overview with a snoozed cause")
	fits(t, p, "the overview with a snoozed cause")
	arrive(letters[2:15]...)
	says(false, "/", "Snoozed")
	says(true, "/", "owner ann")
	b.works(&fixture.Outbox{})
	b.started(campaigns.Request{})
	testkit.Eventually(t, "all is redriven, and the waking on record", func() bool {
		return b.all()[0].State.Ended() && strings.Contains(b.get("/audit?kind=cause").body, "it grew: 15 letters in the last hour, 2 in the hour before the snooze")
	})
	says(false, "/causes", "ledger")
	arrive(letters[15])
	says(true, "/causes", "Known: owner ann the ledger is slow")
	quiet(t, p, "none")
}

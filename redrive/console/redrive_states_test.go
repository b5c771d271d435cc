package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V11: of a list of letters in all states a redrive or a discard takes those that wait.
func TestSelectionOfAllStates(t *testing.T) {
	b := newBench(t)
	b.fill(1, 20)
	b.mark(letters.Filter{MaxSeq: 12}, letters.StatusSucceeded)
	chosen := func(statuses ...letters.Status) string {
		f := letters.Filter{Statuses: statuses}
		n := testkit.Must(b.store.Count(t.Context(), f))
		f.MaxSeq = 20
		return operate.Selection{Filter: f, Number: n}.Values().Encode()
	}
	all := chosen(letters.Statuses()...)
	dry := b.get("/redrive?" + all)
	dry.want(t, http.StatusOK, "Only letters that wait are redriven: the others of the selection have been dealt with.", "8 letters would be redriven", "Redrive 8 letters")
	dry.wantNot(t, "The selection has letters that do not wait: they were redriven, discarded or set aside before. A redrive publishes them again.")
	b.post("/redrive", with(dry.fields(t), "reason", "INC-7", "do", "start")).goes(t, "campaigns/")
	c := b.all()
	testkit.Check(t, len(c) == 1 && c[0].Selected == 8, "campaigns %+v", c)
	b.get("/redrive?"+chosen(letters.StatusSucceeded)).want(t, http.StatusOK, "The selection has letters that do not wait: they were redriven, discarded or set aside before. A redrive publishes them again.", "12 letters would be redriven")

	b.post("/discard", with(b.get("/discard?"+all).fields(t), "reason", "of no use")).goes(t, "discards/")
	testkit.Returns(t, 12)(b.store.Count(t.Context(), letters.Filter{Statuses: []letters.Status{letters.StatusSucceeded}}))
}

// Feature V11: if more letters match than the dry run had, the start asks again.
func TestRedriveTakesNoMoreThanShown(t *testing.T) {
	b := newBench(t)
	b.fill(1, 6)
	back := func(from, to letters.Status) {
		t.Helper()
		testkit.Returns(t, 3)(b.store.MarkAll(t.Context(), letters.Filter{MaxSeq: 3, Statuses: []letters.Status{from}}, to, letters.Act{By: "bob"}))
	}
	everything := b.everything()
	back(letters.StatusWaiting, letters.StatusDiscarded)
	dry := b.get("/redrive?"+everything).want(t, http.StatusOK, "Redrive 3 letters")
	back(letters.StatusDiscarded, letters.StatusWaiting)
	form := with(dry.fields(t), "reason", "INC-7", "do", "start")
	again := b.post("/redrive", form)
	again.want(t, http.StatusConflict, say("%s letter matches now, more than you saw. Look again.|%s letters match now, more than you saw. Look again.", 6), "Redrive 6 letters")
	testkit.Require(t, len(b.all()) == 0, "more letters were taken than shown")
	b.post("/redrive", with(again.fields(t), "do", "start")).goes(t, "campaigns/")
	c := b.all()
	testkit.Check(t, len(c) == 1 && c[0].Selected == 6, "campaigns %+v", c)
}

// rowOf is what a list of causes links to in the row of a reason, by the words of the links.
func (p page) rowOf(t testing.TB, reason string) map[string]string {
	t.Helper()
	for _, row := range p.elements(t, "tr") {
		if !strings.Contains(textOf(row), reason) {
			continue
		}
		links := map[string]string{}
		for a := range row.Descendants() {
			if a.Type == html.ElementNode && a.Data == "a" {
				links[textOf(a)] = strings.TrimPrefix(attribute(a, "href"), ".")
			}
		}
		return links
	}
	t.Fatalf("no row of %s: %s", reason, p.body)
	return nil
}

// Feature V11: all letters of a cause are discarded, and put back, from the list of causes: those that were counted.
func TestActsOfCause(t *testing.T) {
	b := newBench(t)
	b.fill(7, 40)
	of := letters.Filter{Reasons: []string{"panic"}}
	n := testkit.Must(b.store.Count(t.Context(), of))
	testkit.Equal(t, "links for a person who may look", len(b.get("/causes", as(Look)).rowOf(t, "panic")), 3)
	row := b.get("/causes").rowOf(t, "panic")
	for _, row := range []map[string]string{row, b.get("/").rowOf(t, "panic")} {
		b.get(row["Redrive "+grouped(n)+" panic"]).want(t, http.StatusOK, lettersOf(n)+" would be redriven")
	}
	ask := b.get(row["Discard "+grouped(n)+" panic"]).want(t, http.StatusOK, discards.Button(operate.Exactly(n)))
	b.post("/discard", with(ask.fields(t), "reason", "of no use")).goes(t, "discards/")
	b.want(letters.StatusDiscarded, n)
	list := b.get(row["panic"]).want(t, http.StatusOK, "Letters of one cause", "No letter matches.", "discarded")
	discarded := b.get(list.linked(t, "discarded "+grouped(n)))
	discarded.want(t, http.StatusOK, say("%s letter matches.|%s letters match.", n), "Restore all "+grouped(n)+" letters that match")

	row = b.get("/causes?status=discarded").rowOf(t, "panic")
	for words := range row {
		testkit.Check(t, !strings.HasPrefix(words, "Redrive") && !strings.HasPrefix(words, "Discard"),
			"discarded letters are offered to %s", words)
	}
	b.post("/restore", with(b.get(row["Restore "+grouped(n)+" panic"]).fields(t), "reason", "a mistake")).goes(t, "restores/")
	b.want(letters.StatusDiscarded, 0)
	b.get(row["panic"]).want(t, http.StatusOK, "No letter matches.")
}

// Feature V11: the form of a redrive begins with a rate and a canary that fit its letters.
func TestCarefulSettings(t *testing.T) {
	for n, want := range map[int][2]string{1: {"20", ""}, 20: {"20", ""}, 21: {"20", "10"}, 5_000: {"20", "50"}, 100_000: {"27", "100"}, 5_000_000: {"100", "100"}} {
		rate, canary := carefully(operate.Exactly(n))
		testkit.Equal(t, fmt.Sprint(n), [2]string{rate, canary}, want)
	}
	rate, canary := carefully(operate.Number{})
	testkit.Check(t, rate == "20" && canary == "100", "many letters: rate %s and canary %s", rate, canary)
	b := newBench(t)
	b.fill(7, 30)
	form := b.get("/redrive?"+b.everything()).want(t, http.StatusOK, "Letters of a canary go first").fields(t)
	testkit.Check(t, form.Get("rate") == "20" && form.Get("canary") == "10", "%v", form)
}

// Feature V11: a redrive of a page that was open for long finds nothing to do, and leaves no campaign without letters.
func TestStaleRedrive(t *testing.T) {
	b := newBench(t)
	b.fill(1, 6)
	all, one := b.get("/redrive?"+b.everything()), b.get("/redrive?seq=1")
	forms := []url.Values{all.fields(t), one.fields(t)}
	b.mark(letters.Filter{}, letters.StatusDiscarded)
	for _, form := range forms {
		b.post("/redrive", with(form, "reason", "INC-7", "do", "start")).want(t, http.StatusConflict)
	}
	testkit.Check(t, len(b.all()) == 0, "campaigns %+v", b.all())
}

// Feature V11, promise P6: of a message whose newer letter waits the older letter is not redriven, edited or not, and
// the page says why.
func TestOlderLetter(t *testing.T) {
	b := newBench(t)
	fixture.Publish(t, b.store, "orders.dlq", fixture.Letter("id-1", `{"order":1}`))
	b.mark(letters.Filter{}, letters.StatusFailedAgain)
	fixture.Publish(t, b.store, "orders.dlq", fixture.Letter("id-1", `{"order":1,"again":true}`))
	const says = "a newer letter of the message waits"
	form := with(b.get("/letters/1/edit").want(t, http.StatusOK).fields(t), "payload", `{"order":2}`, "reason", "INC-7")
	b.post("/letters/1/edit", with(form, "do", "difference")).want(t, http.StatusOK, says)
	b.post("/letters/1/edit", with(form, "do", "start")).want(t, http.StatusConflict, says)
	testkit.Check(t, len(b.all()) == 0, "campaigns %+v", b.all())
	b.get("/redrive?seq=2").want(t, http.StatusOK, "Redrive 1 letter").wantNot(t, says)
}

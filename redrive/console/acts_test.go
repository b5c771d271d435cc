package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

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

// Feature V11: all letters of a cause are discarded, and put back, from the list of causes: those that were counted, with
// the same question and reason as elsewhere. The list of the cause's letters says what became of them.
func TestActsOfCause(t *testing.T) {
	b := newBench(t)
	b.fill(7, 40)
	of := letters.Filter{Reasons: []string{"panic"}}
	n := testkit.Must(b.store.Count(t.Context(), of))
	if row := b.get("/causes", as(Look)).rowOf(t, "panic"); len(row) != 3 {
		t.Errorf("a person who may look is offered %v", row)
	}
	row := b.get("/causes").rowOf(t, "panic")
	for _, page := range []page{b.get(row["Redrive "+grouped(n)+" panic"]), b.get(b.get("/").rowOf(t, "panic")["Redrive "+grouped(n)+" panic"])} {
		page.want(t, http.StatusOK, lettersOf(n)+" would be redriven")
	}
	ask := b.get(row["Discard "+grouped(n)+" panic"])
	ask.want(t, http.StatusOK, discards.Button(operate.Exactly(n)))
	b.post("/discard", with(ask.fields(t), "reason", "of no use")).goes(t, "discards/")
	b.want(letters.StatusDiscarded, n)
	list := b.get(row["panic"])
	list.want(t, http.StatusOK, "Letters of one cause", "No letter matches.", "discarded")
	discarded := b.get(list.linked(t, "discarded "+grouped(n)))
	discarded.want(t, http.StatusOK, say("%s letter matches.|%s letters match.", n), "Restore all "+grouped(n)+" letters that match")

	row = b.get("/causes?status=discarded").rowOf(t, "panic")
	for words := range row {
		testkit.Check(t, !strings.HasPrefix(words, "Redrive") && !strings.HasPrefix(words, "Discard"),
			"discarded letters are offered to %s", words)
	}
	b.post("/restore", with(b.get(row["Restore "+grouped(n)+" panic"]).fields(t), "reason", "a mistake")).goes(t, "restores/")
	b.want(letters.StatusDiscarded, 0)
	if list := b.get(row["panic"]); !strings.Contains(list.body, "No letter matches.") {
		t.Errorf("restored letters are in the list of discarded ones: %s", list.body)
	}
}

// Feature V11: the form of a redrive begins with a rate and a canary that fit the number of letters, says what they do,
// and a button takes them away, or brings them back.
func TestCarefulSettings(t *testing.T) {
	for n, want := range map[int][2]string{1: {"20", ""}, 20: {"20", ""}, 21: {"20", "10"}, 5_000: {"20", "50"}, 100_000: {"27", "100"}, 5_000_000: {"100", "100"}} {
		if rate, canary := carefully(operate.Exactly(n)); rate != want[0] || canary != want[1] {
			t.Errorf("%d letters: rate %s and canary %q, want %v", n, rate, canary, want)
		}
	}
	if rate, canary := carefully(operate.Number{}); rate != "20" || canary != "100" {
		t.Errorf("many letters: rate %s and canary %s", rate, canary)
	}
	b := newBench(t)
	b.fill(7, 30)
	b.get("/redrive?seq=1").want(t, http.StatusOK, "So few letters need no canary. The rate spares what their handlers call.")
	form := b.get("/redrive?" + b.everything())
	form.want(t, http.StatusOK, "10 go first. If too many of these fail again, the campaign pauses")
	press := func(p page, button string) (page, url.Values) {
		p = b.post("/redrive", with(p.fields(t), "do", button))
		return p, p.fields(t)
	}
	free, fields := press(form, "free")
	free.want(t, http.StatusOK, "Without a canary all go", "Without a rate they go as fast as the workers can.")
	testkit.Check(t, fields.Get("rate")+fields.Get("canary") == "", "the form without care has %v", fields)
	if _, fields = press(free, "careful"); fields.Get("rate") != "20" || fields.Get("canary") != "10" {
		t.Errorf("the careful form has %v", fields)
	}
}

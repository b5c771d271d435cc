package console

import (
	"net/http"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V11: a list of letters in all states has those that were dealt with. A redrive or a discard of the list takes
// those that wait, and one of another state that the person chose says what it is.
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

// Feature V11: the page of a campaign says which letters it chose.
func TestCampaignSaysItsSelection(t *testing.T) {
	b := newBench(t)
	b.fill(1, 20)
	start := func(query string) page {
		return b.get(b.post("/redrive", with(b.get("/redrive?"+query).fields(t), "reason", "INC-7", "do", "start")).goes(t, "campaigns/"))
	}
	n, err := b.store.Count(t.Context(), letters.Filter{Handlers: []string{"shipping"}})
	testkit.Require(t, err == nil && n != 0, "%d letters of shipping: %v", n, err)
	start(operate.Selection{Filter: letters.Filter{Handlers: []string{"shipping"}, MaxSeq: 20}, Number: n}.Values().Encode()).
		want(t, http.StatusOK, "Handler"+": shipping", say("up to letter %s", 20))
	first, err := b.store.Heads(t.Context(), letters.Filter{Handlers: []string{"billing"}, Limit: 1})
	testkit.Require(t, err == nil && len(first) != 0, "%v letters: %v", first, err)
	start(operate.Selection{Seqs: []int64{first[0].Seq}}.Values().Encode()).want(t, http.StatusOK, say("%s letter, chosen one by one|%s letters, chosen one by one", 1))
}

func TestNumbersAsTyped(t *testing.T) {
	for typed, want := range map[string]string{"1500": "1500", "1,500": "1500", "12,345.5": "12345.5", "1,5": "1,5", "1.000,5": "1.000,5", "1,50": "1,50", ",5": ",5"} {
		got := ungrouped(typed)
		testkit.Check(t, got == want, "%q became %q, want %q", typed, got, want)
	}
	b := newBench(t)
	b.fill(1, 5)
	form := with(b.get("/redrive?"+b.everything()).fields(t), "reason", "INC-7", "do", "start", "rate", "1,5")
	b.post("/redrive", form).want(t, http.StatusBadRequest, "Letters a second")
	testkit.Check(t, len(b.all()) == 0, "a campaign began at a rate that its form did not mean")
}

// Feature V11: discarded letters are restored before a redrive takes them, and the page of a letter offers what can be
// done with it.
func TestDiscardedAreNotRedriven(t *testing.T) {
	b := newBench(t)
	b.fill(1, 3)
	b.mark(oneLetter(2, nil), letters.StatusDiscarded)
	f := letters.Filter{Statuses: []letters.Status{letters.StatusDiscarded}, MaxSeq: 3}
	b.get("/redrive?"+operate.Selection{Filter: f, Number: 1}.Values().Encode()).want(t, http.StatusBadRequest, "Discarded and erased letters are not redriven. Restore discarded letters first: the record of the discard has a link.")
	b.get("/redrive?seq=2").want(t, http.StatusOK, "None of the chosen letters waits: they were redriven, discarded or erased, or they are not there.")
	for _, action := range []string{"redrive?seq=", "discard?seq=", "letters/"} { // the last is the page that edits
		ending := map[bool]string{true: "/edit"}[action == "letters/"]
		if p := b.get("/letters/1"); !strings.Contains(p.body, action+"1"+ending) {
			t.Errorf("the page of a letter that waits offers no %s: %s", action, p.body)
		}
		if p := b.get("/letters/2"); strings.Contains(p.body, action+"2"+ending+`"`) {
			t.Errorf("the page of a discarded letter offers %s: %s", action, p.body)
		}
	}
	f.Statuses = []letters.Status{letters.StatusSucceeded}
	b.get("/discard?"+operate.Selection{Filter: f, Number: 1}.Values().Encode()).want(t, http.StatusBadRequest, "Letters that were redriven, discarded or erased are not discarded. Choose letters that wait, were refused or are in quarantine.")
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
	dry := b.get("/redrive?" + everything)
	dry.want(t, http.StatusOK, "Redrive 3 letters")
	back(letters.StatusDiscarded, letters.StatusWaiting)
	form := with(dry.fields(t), "reason", "INC-7", "do", "start")
	again := b.post("/redrive", form)
	again.want(t, http.StatusConflict, say("%s letter matches now, more than you saw. Look again.|%s letters match now, more than you saw. Look again.", 6), "Redrive 6 letters")
	testkit.Require(t, len(b.all()) == 0, "more letters were taken than shown")
	b.post("/redrive", with(again.fields(t), "do", "start")).goes(t, "campaigns/")
	c := b.all()
	testkit.Check(t, len(c) == 1 && c[0].Selected == 6, "campaigns %+v", c)
}

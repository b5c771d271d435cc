package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V11: letters are discarded with a reason, those that were selected and no later ones, once, and are restored.
func TestDiscard(t *testing.T) {
	b := newBench(t)
	fixture.Publish(t, b.store, "orders.dlq", fixture.Several(300)...)
	p := b.get("/discard?"+b.everything()).want(t, http.StatusOK, "Discard 300 letters", "<bdi>id-0</bdi>")
	fixture.Publish(t, b.store, "orders.dlq", fixture.Letter("late", "{}"))
	form := p.fields(t)
	b.post("/discard", form).want(t, http.StatusBadRequest, "The reason is empty")
	b.post("/discard", with(form, "reason", strings.Repeat("x", 2000))).want(t, http.StatusBadRequest, "it may have 1024")
	b.post("/discard", with(form, "reason", "r", "key", "9f3a12bc-0000-4000-8000-000000000001")).want(t, http.StatusBadRequest)
	b.want(letters.StatusWaiting, 301)
	form = with(form, "reason", "test <tenant>")
	at := b.post("/discard", form).goes(t, "discards/discard-")
	b.want(letters.StatusDiscarded, 300)
	again := b.post("/discard", form).goes(t, "discards/discard-")
	testkit.Check(t, again == at, "%s, and sent again %s", at, again)
	b.get(at).want(t, http.StatusOK, "300 letters are discarded", "test &lt;tenant&gt;", "<bdi>ann</bdi>")
	b.get(at, as(Look)).want(t, http.StatusOK, "300 letters are discarded")
	undo, _, _ := strings.Cut(at, "?")
	b.post(undo+"/undo", nil).want(t, http.StatusBadRequest, "The reason is empty")
	b.post(undo+"/undo", with(reason, "reason", "a mistake"), by("bob", Operate)).goes(t, "discards/")
	b.want(letters.StatusWaiting, 301)
	events, err := b.store.Audit(t.Context(), letters.EventFilter{Kinds: []letters.EventKind{letters.EventDiscarded, letters.EventWaiting}, Limit: 1000})
	testkit.Check(t, err == nil && len(events) == 600 && events[0].By == "ann" && events[0].Reason == "test <tenant>" &&
		events[599].By == "bob" && events[599].Reason == "a mistake", "%d events, %v", len(events), err)
	b.get("/discards/discard-9f3a12bc-0000-4000-8000-000000000001").want(t, http.StatusNotFound)
	b.get("/discards/x").want(t, http.StatusNotFound)
}

// Feature V11: letters are discarded by their boxes. What was redriven or restored meanwhile stays as it is.
func TestDiscard_single(t *testing.T) {
	b := newBench(t)
	fixture.Publish(t, b.store, "orders.dlq", fixture.Several(4)...)
	p := b.get("/discard?seq=1&seq=2&seq=3").want(t, http.StatusOK, "Discard 3 letters")
	b.mark(oneLetter(2, nil), letters.StatusRedriven)
	at := b.post("/discard", with(p.fields(t), "reason", "INC-7")).goes(t, "discards/")
	b.want(letters.StatusDiscarded, 2)
	b.want(letters.StatusRedriven, 1)
	b.get(at).want(t, http.StatusOK, "2 letters are discarded")
	b.mark(oneLetter(1, []letters.Status{letters.StatusDiscarded}), letters.StatusRefused)
	b.post("/discard", with(b.get("/discard?seq=4").fields(t), "reason", "INC-8")).goes(t, "discards/")
	undo, _, _ := strings.Cut(at, "?")
	b.post(undo+"/undo", reason).goes(t, "discards/")
	b.want(letters.StatusRefused, 1)
	b.want(letters.StatusDiscarded, 1) // of the other discard
	b.want(letters.StatusWaiting, 1)
	b.post("/discard", with(b.get("/discard?seq=2").fields(t), "reason", "INC-7")).want(t, http.StatusConflict, "None of these letters can be discarded any more.")
}

// Feature V11: if more letters match meanwhile, the form comes back with their number, and nothing is discarded.
func TestDiscard_more(t *testing.T) {
	b := newBench(t)
	fixture.Publish(t, b.store, "orders.dlq", fixture.Several(3)...)
	b.mark(oneLetter(2, nil), letters.StatusRefused)
	p := b.get("/discard?"+b.everything()).want(t, http.StatusOK, "Discard 2 letters")
	b.mark(oneLetter(2, []letters.Status{letters.StatusRefused}), letters.StatusWaiting)
	p = b.post("/discard", with(p.fields(t), "reason", "INC-7"))
	p.want(t, http.StatusConflict, "3 letters match now", "Discard 3 letters", `value="INC-7"`)
	b.want(letters.StatusDiscarded, 0)
	b.post("/discard", p.fields(t)).goes(t, "discards/")
	b.want(letters.StatusDiscarded, 3)
}

// Feature V11: a discard leaves what a program works on, and a campaign does not redrive what was discarded.
func TestDiscard_held(t *testing.T) {
	b := newBench(t)
	fixture.Publish(t, b.store, "orders.dlq", fixture.Several(9)...)
	b.started(campaigns.Request{Seqs: []int64{1, 2, 3, 4}, NotBefore: time.Now().Add(time.Hour)})
	leased, err := fixture.Lease(t.Context(), b.store, letters.Filter{}, []int64{4, 9}, time.Hour)
	testkit.Require(t, err == nil && len(leased) == 2, "%v %v", leased, err)
	p := b.get("/discard?" + b.everything())
	b.post("/discard", with(p.fields(t), "reason", "INC-7")).goes(t, "discards/")
	b.want(letters.StatusDiscarded, 7)
	b.want(letters.StatusWaiting, 2)
}

// Feature V11: discarded letters are restored from a letter and from the list, with a reason. Others stay.
func TestRestore(t *testing.T) {
	b := newBench(t)
	b.fill(1, 12)
	b.post("/discard", with(b.get("/discard?seq=2&seq=3&seq=4&seq=5").fields(t), "reason", "test data")).goes(t, "discards/")

	at := b.get("/letters/2").linked(t, "Restore")
	p := b.get(strings.TrimPrefix(at, "."))
	p.want(t, http.StatusOK, "Letters that are restored wait again, with your name and reason. Then they can be redriven.", "Restore 1 letter<")
	form := p.fields(t)
	testkit.Equal(t, "without a reason", b.post("/restore", with(form, "reason", " ")).wrong(t, "reason"),
		"The reason is empty: say why, for those who read the record later.")
	form = with(form, "reason", "not of the test")
	to := b.post("/restore", form, by("bob", Operate)).goes(t, "restores/restore-")
	again := b.post("/restore", form, by("bob", Operate)).goes(t, "restores/")
	testkit.Check(t, again == to, "%s, and sent again %s", to, again)
	b.get(to).want(t, http.StatusOK, "1 letter that was restored waits.", "<bdi>bob</bdi>", "not of the test")
	b.get(strings.TrimPrefix(b.get(to).linked(t, "Show the letters"), ".")).want(t, http.StatusOK, "Redrive the 1 letter that matches")
	b.want(letters.StatusDiscarded, 3)
	testkit.Equal(t, "what a letter that waits is offered", b.get("/letters/2").linked(t, "Restore"), "")

	p = b.get("/letters?status=discarded")
	got := p.buttons(t, "") // behind that of the filter
	if want := []string{"Restore all 3 letters that match", "Restore the chosen letters"}; !slices.Equal(got[1:], want) || strings.Contains(fmt.Sprint(got), "Redrive") {
		t.Errorf("the list of discarded letters offers %q, want %q", got, want)
	}
	all := b.get("/restore?" + p.fieldsOf(t, "Restore all 3 letters that match").Encode())
	all.want(t, http.StatusOK, "Restore 3 letters<")
	b.get(b.post("/restore", with(all.fields(t), "reason", "a mistake")).goes(t, "restores/")).want(t, http.StatusOK, "3 letters that were restored wait.")
	b.want(letters.StatusWaiting, 12)

	b.get("/restore?seq=1").want(t, http.StatusOK, "Restore 0 letters<", "disabled")
	b.get("/restore?"+b.everything()).want(t, http.StatusBadRequest, "None of these letters is discarded. Choose discarded letters.")
	b.get("/restores/restore-9f3a12bc-0000-4000-8000-000000000001").want(t, http.StatusNotFound)
	b.get("/restores/discard-9f3a12bc-0000-4000-8000-000000000001").want(t, http.StatusNotFound)
	b.get("/audit").want(t, http.StatusOK, "./restores/restore-", "./discards/discard-")
}

// Feature V11, decision 23: a button has the number of the list if it takes all of it, and else none.
func TestListActions(t *testing.T) {
	b := newBench(t)
	b.fill(1, 12)
	for seq, status := range map[int64]letters.Status{1: letters.StatusDiscarded, 2: letters.StatusSucceeded, 3: letters.StatusQuarantined} {
		b.mark(oneLetter(seq, nil), status)
	}
	for query, want := range map[string][]string{
		"":                                   {"Redrive all 9 letters that match", "Discard all 9 letters that match"},
		"?status=waiting&status=quarantined": {"Redrive all 10 letters that match", "Discard all 10 letters that match"},
		"?status=succeeded":                  {"Redrive the 1 letter that matches"},
		"?status=waiting&status=succeeded":   {"Redrive all 10 letters that match", "Discard letters of this list"},
		"?status=discarded":                  {"Restore the 1 letter that matches"},
		"?status=discarded&status=waiting":   {"Redrive letters of this list", "Restore the discarded letters of this list", "Discard letters of this list"},
		"?status=all":                        {"Redrive letters of this list", "Restore the discarded letters of this list", "Discard letters of this list"},
	} {
		var got []string
		p := b.get("/letters" + query)
		for _, label := range p.buttons(t, "") {
			if !strings.Contains(label, "chosen") && label != "Show" {
				got = append(got, label)
			}
		}
		testkit.Check(t, slices.Equal(got, want), "%s offers %q, want %q", query, got, want)
	}
	testkit.Equal(t, "buttons for a person who may look", len(b.get("/letters", as(Look)).buttons(t, "Redrive")), 0)
}

// truth is how many letters a filter chooses, counted without a limit.
func (b *bench) truth(f letters.Filter) int {
	b.t.Helper()
	return testkit.Must(b.store.Count(b.t.Context(), f))
}

// several stores n letters, few at a time: storing has a time limit.
func (b *bench) several(n int) {
	b.t.Helper()
	for some := range slices.Chunk(fixture.Several(n), 500) {
		fixture.Publish(b.t, b.store, "orders.dlq", some...)
	}
}

// buttons are what the buttons of a page say that begin with a word.
func (p page) buttons(t testing.TB, begin string) (labels []string) {
	t.Helper()
	for _, button := range p.elements(t, "button") {
		if label := textOf(button); strings.HasPrefix(label, begin) {
			labels = append(labels, label)
		}
	}
	return labels
}

// says fails the test unless button and text say what is true of a decision, or that it is not known.
func (p page) says(t testing.TB, d *decision, known bool, left, done int) {
	t.Helper()
	button := d.Button(numberIf(left, known))
	got := p.buttons(t, strings.Fields(d.Title)[0])
	testkit.Check(t, slices.Contains(got, button), "the buttons say %q, want %q", got, button)
	sofar := say(d.SoFar, done)
	testkit.Check(t, strings.Contains(p.body, sofar) == known, "known: %v, and the page says %q: %v", known, sofar, !known)
}

// patiently sends a form until a step gets somewhere: its time may be too short for one transaction here.
func (b *bench) patiently(path string, form url.Values) page {
	b.t.Helper()
	for {
		p := b.post(path, form)
		if p.StatusCode != http.StatusServiceUnavailable || b.console.step > time.Minute {
			return p
		}
		b.console.step *= 2
	}
}

// Feature V11, decision 23: a discard goes on in steps, each with true numbers or none, and so does its end.
func TestDiscard_large(t *testing.T) {
	const many = 6_000 // more than a dry run reads
	b := newBench(t)
	b.several(many)
	last := testkit.Must(hidden.Of(b.store).LastSeq(t.Context()))
	waiting, step := letters.Filter{MaxSeq: last}, 0
	p := b.get("/discard?"+b.everything()).want(t, http.StatusOK, say(discards.number, many))
	key := p.fields(t).Get("key")
	b.get("/redrive?"+b.everything()).want(t, http.StatusOK, say("Redrive up to %s letter|Redrive up to %s letters", many)+"<")
	b.console.counting = -1
	b.get("/redrive?"+b.everything()).want(t, http.StatusOK, "Redrive all that match (not counted)"+"<", say("These numbers are of the first %s letter. There may be more.|These numbers are of the first %s letters. There may be more.", operate.Planned))
	b.console.timeout = 2 * time.Minute
	b.console.step = time.Millisecond // patiently makes it as long as one transaction takes here
	form := with(p.fields(t), "reason", "INC-7")
	for {
		b.console.counting = []time.Duration{-1, time.Minute}[step%2]
		known := step%2 == 1
		at := b.patiently("/discard", form).goes(t, "discards/")
		left, done := b.truth(waiting), b.truth(discards.Of(key))
		testkit.Require(t, done != 0 && left+done == many, "%d are left, and %d done, of %d", left, done, many)
		if step++; step == 4 {
			b.console.step *= 8
		}
		if left == 0 {
			p = b.get(at)
			break
		}
		path, query, _ := strings.Cut(at, "?")
		q := testkit.Must(url.ParseQuery(query))
		q.Del(fieldExact)
		p = b.get(path + "?" + q.Encode())
		p.says(t, discards, known, left, done)
		if again := p.linked(t, "Count them"); !known {
			b.get(strings.TrimPrefix(again, ".")).says(t, discards, true, left, done)
		}
		form = with(p.fieldsOf(t, discards.Button(numberIf(left, known))), "reason", "INC-7 again") // as a person who left takes it up
	}
	end := p
	end.want(t, http.StatusOK, say(discards.Done, many), restores.Button(operate.Exactly(many)))
	testkit.Check(t, step >= 2 && len(end.buttons(t, "Discard")) == 0,
		"%d steps, and then the buttons %q", step, end.buttons(t, ""))
	b.want(letters.StatusDiscarded, many)
	var recorded int
	err := b.db.QueryRowContext(context.Background(), `SELECT COUNT(*) FROM spillway_letter_events WHERE kind = 'discarded'`).Scan(&recorded)
	testkit.Check(t, err == nil && recorded == many, "%d events on record: %v", recorded, err)
}

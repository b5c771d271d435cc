package console

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V11: discarded letters are restored by the page of a letter and from the list, with a reason. The page says
// how many wait again, and leads to them. Others stay as they are.
func TestRestore(t *testing.T) {
	b := newBench(t)
	b.fill(1, 12)
	b.post("/discard", with(b.get("/discard?seq=2&seq=3&seq=4&seq=5").fields(t), "reason", "test data")).goes(t, "discards/")

	at := b.get("/letters/2").linked(t, "Restore")
	p := b.get(strings.TrimPrefix(at, "."))
	p.want(t, http.StatusOK, "Letters that are restored wait again, with your name and reason. Then they can be redriven.", "Restore 1 letter<")
	form := p.fields(t)
	if got := b.post("/restore", with(form, "reason", " ")).wrong(t, "reason"); got != "The reason is empty: say why, for those who read the record later." {
		t.Errorf("without a reason: %q", got)
	}
	form = with(form, "reason", "not of the test")
	to := b.post("/restore", form, by("bob", Operate)).goes(t, "restores/restore-")
	if again := b.post("/restore", form, by("bob", Operate)).goes(t, "restores/"); again != to {
		t.Errorf("%s, and sent again %s", to, again)
	}
	b.get(to).want(t, http.StatusOK, "1 letter that was restored waits.", "<bdi>bob</bdi>", "not of the test")
	b.get(strings.TrimPrefix(b.get(to).linked(t, "Show the letters"), ".")).want(t, http.StatusOK, "Redrive the 1 letter that matches")
	b.want(letters.StatusDiscarded, 3)
	if p := b.get("/letters/2"); p.linked(t, "Restore") != "" {
		t.Error("a letter that waits is offered to be restored")
	}

	p = b.get("/letters?status=discarded")
	got := p.buttons(t, "")
	if want := []string{"Restore all 3 letters that match", "Restore the chosen letters"}; !slices.Equal(got[len(got)-2:], want) || strings.Contains(fmt.Sprint(got), "Redrive") {
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

// Feature V11, decision 23: the buttons of a list have its number if they take all of its letters. One that takes some
// of them has none.
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
			if !strings.Contains(label, "chosen") && label != "Show" && label != "Show these" {
				got = append(got, label)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s offers %q, want %q", query, got, want)
		}
	}
	if got := b.get("/letters", as(Look)).buttons(t, "Redrive"); len(got) > 0 {
		t.Errorf("a person who may look is offered %q", got)
	}
}

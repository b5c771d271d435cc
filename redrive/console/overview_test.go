package console

import (
	"net/http"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V11: the overview has the numbers, the causes of the last hour and what was done.
func TestOverview(t *testing.T) {
	b := newBench(t)
	b.get("/").want(t, http.StatusOK, "no letter waits", text("overview.arrivals.none"))
	b.fill(1, 1312)
	p := b.get("/")
	p.want(t, http.StatusOK, ">1,312</a>", "no_such_customer", "<svg", `href="./letters?cause=`)
}

// What one person did to many letters at once is one line of the overview.
func TestOverviewFoldsEvents(t *testing.T) {
	b := newBench(t)
	b.fill(1, 300)
	show := func(by string, n int) {
		var seqs []int64
		for i := range n {
			seqs = append(seqs, int64(i+1))
		}
		if _, err := b.store.Record(t.Context(), nil, letters.EventShown, letters.Act{By: by, Reason: "look"}, seqs...); err != nil {
			t.Fatal(err)
		}
	}
	show("bob", 300)
	show("ann", 3)
	p := b.get("/")
	p.want(t, http.StatusOK, text("overview.audit.several", 3), text("overview.audit.atleast", 197))
	if n := strings.Count(p.body, "<bdi>look</bdi>"); n != 2 {
		t.Errorf("%d lines: %s", n, p.body)
	}
}

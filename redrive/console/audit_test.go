package console

import (
	"encoding/csv"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// regexpNext finds the address of the next page.
var regexpNext = regexp.MustCompile(`<a class="button" href="([^"]*(?:before|after)=[^"]*)">`)

// recorded makes a record of 120 changes by two persons.
func (b *bench) recorded() {
	b.t.Helper()
	fixture.Publish(b.t, b.store, "orders.dlq", fixture.Several(120)...)
	for seq := range int64(120) {
		act := letters.Act{By: []string{"ann", "=cmd()"}[seq%2], Reason: fmt.Sprintf("reason %d <x>", seq+1)}
		testkit.Must(b.store.MarkAll(b.t.Context(), oneLetter(seq+1, nil), []letters.Status{letters.StatusDiscarded, letters.StatusRefused}[seq%2], act))
	}
	edit := `{"merge":{"password":"secret-1","currency":"EUR"}}`
	testkit.Must(hidden.Of(b.store).Record(b.t.Context(), nil, letters.EventEdited, letters.Act{By: "eve", Reason: "INC-7", RedriveID: "drain-7", Detail: edit}, 7))
}

// Feature V11: the record is read by each field, the newest first, and each entry is on one page.
func TestAudit(t *testing.T) {
	b := newBench(t)
	b.recorded()
	seen := map[string]int{}
	reasons := regexp.MustCompile(`reason \d+ &lt;x&gt;`)
	for at, pages := "/audit?kind=discarded&kind=refused", 0; at != ""; pages++ {
		p := b.get(at).want(t, http.StatusOK)
		for _, found := range reasons.FindAllString(p.body, -1) {
			seen[found]++
		}
		at = ""
		if next := regexpNext.FindStringSubmatch(p.body); next != nil {
			at = "/" + strings.TrimPrefix(strings.ReplaceAll(next[1], "&amp;", "&"), "./")
		}
		testkit.Require(t, pages <= 5, "the pages do not end")
	}
	for reason, times := range seen {
		testkit.Check(t, times == 1, "%s is there %d times", reason, times)
	}
	testkit.Check(t, len(seen) == 120, "%d entries", len(seen))
	for query, want := range map[string]int{
		"by=ann": 60, "kind=refused": 60, "id=id-6": 2, "letter=7": 3, "redrive-id=drain-7": 1, "since=1h&by=eve": 1, "until=1h": 0, "by=nobody": 0,
	} {
		testkit.Equal(t, query+": rows and a head", strings.Count(b.get("/audit?"+query).body, "<tr>"), want+min(want, 1))
	}
	many := ""
	for i := range letters.MaxListed + 1 {
		many += fmt.Sprintf("&by=%d", i)
	}
	for _, query := range []string{"kind=x", "letter=x", "after=-1", "since=soon", many} {
		b.get("/audit?"+query).want(t, http.StatusBadRequest)
	}
}

// Feature V11: the record is exported as JSON lines and as CSV without formulas, masked as for the page.
func TestAudit_export(t *testing.T) {
	b := newBench(t)
	b.recorded()
	p := b.get("/audit/audit.csv?kind=refused&kind=discarded").want(t, http.StatusOK)
	rows, err := csv.NewReader(strings.NewReader(p.body)).ReadAll()
	testkit.Require(t, err == nil && len(rows) == 121 && rows[0][1] == "at", "%d rows, %v", len(rows), err)
	for _, row := range rows[1:] {
		by := row[5]
		testkit.Check(t, by == "ann" || by == "'=cmd()", "%q", by)
	}
	act := letters.Act{By: ";=1;=2", Reason: "a \"b\" ; \"@x\";\t-y\t+z;|w;plain"}
	testkit.Must(b.store.MarkAll(t.Context(), oneLetter(1, letters.Statuses()), letters.StatusWaiting, act))
	quoted := b.get("/audit/audit.csv?kind=waiting")
	for _, line := range strings.Split(strings.TrimSpace(quoted.body), "\n") {
		testkit.Check(t, strings.HasPrefix(line, `"`) && strings.HasSuffix(line, `"`) &&
			strings.Count(line, `","`) == 8, "not every cell is quoted: %s", line)
		for _, cell := range strings.FieldsFunc(line, func(r rune) bool { return r == ';' || r == '\t' })[1:] { // as most of Europe reads it
			if cell = strings.TrimLeft(cell, ` "`); strings.IndexAny(cell, "=+-@|") == 0 {
				t.Errorf("a formula: %s in %s", cell, line)
			}
		}
	}
	testkit.Check(t, strings.Contains(quoted.body, `;'=1;'=2`) && strings.Contains(quoted.body, ";plain"),
		"%s", quoted.body)
	got := p.Header.Get("Content-Disposition")
	testkit.Check(t, got == `attachment; filename="audit.csv"`, "%v", got)
	for _, path := range []string{"/audit?by=eve", "/audit/audit.csv?by=eve", "/api/v1/audit?by=eve"} {
		b.get(path).want(t, http.StatusOK, "EUR").wantNot(t, "secret-1")
		b.get(path, as(LookWithoutPayload)).want(t, http.StatusOK).wantNot(t, "EUR")
	}
	for _, name := range []string{"audit.exe", "audit.csv%22;x", "..%2faudit.csv", "passwd"} {
		b.get("/audit/"+name).want(t, http.StatusNotFound)
	}
}

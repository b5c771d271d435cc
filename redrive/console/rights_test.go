package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// rights are the least role of each route, and a path that it serves.
var rights = rowsOf(map[Role]string{
	nothing: "GET /static/{file}",
	LookWithoutPayload: "GET / | GET /causes | GET /letters | GET /letters/{seq} | GET /sequences | " +
		"GET /sequences/{seq} | GET /campaigns | GET /campaigns/{id} | GET /discards/{id} | GET /restores/{id} | GET /audit | " +
		"GET /audit/audit.csv",
	Operate: "POST /letters/{seq}/payload | POST /sequences/{seq}/release | POST /sequences/{seq}/skip | " +
		"POST /sequences/{seq}/discard | POST /campaigns/{id}/pause | POST /campaigns/{id}/resume | POST /campaigns/{id}/rate | " +
		"POST /campaigns/{id}/cancel | POST /policies/freeze | POST /policies/thaw | POST /policies/{name}/freeze | " +
		"POST /policies/{name}/thaw | POST /policies/{name}/{cause}/release | GET /redrive?seq=1 | POST /redrive | " +
		"GET /letters/{seq}/edit | POST /letters/{seq}/edit | GET /discard?seq=1 | POST /discard | POST /discards/{id}/undo | " +
		"GET /restore?seq=1 | POST /restore | POST /causes/{cause}",
	Approve: "POST /campaigns/{id}/approve",
})

type right struct {
	method, pattern, path string
	least                 Role
}

func rowsOf(routes map[Role]string) (rows []right) {
	values := strings.NewReplacer("{seq}", "1", "{id}", "x", "{name}", "x", "{cause}", "9f3a",
		"{file}", styleName)
	for least, all := range routes {
		for route := range strings.SplitSeq(all, " | ") {
			method, path, _ := strings.Cut(route, " ")
			pattern, _, _ := strings.Cut(path, "?")
			rows = append(rows, right{method, pattern, values.Replace(path), least})
		}
	}
	return rows
}

// Feature V11: each role is refused by each route that needs a greater one, and by no other. A new route needs a row.
func TestRights(t *testing.T) {
	b := newBench(t)
	b.fill(1, 3)
	for _, r := range b.console.routes {
		found := false
		for _, row := range rights {
			found = found || row.method == r.Method && row.pattern == r.Pattern && row.least == Role(r.Right)
		}
		testkit.Check(t, found, "rights has no row for %v %v with the right to %v", r.Method, r.Pattern, Role(r.Right))
	}
	for _, row := range rights {
		for role := nothing; role <= Approve; role++ {
			r := httptest.NewRequest(row.method, row.path, nil)
			if row.method == http.MethodPost {
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			}
			p := b.send(r, as(role))
			refused := p.StatusCode == http.StatusForbidden
			testkit.Check(t, refused == (role < row.least) && p.StatusCode < 500,
				"%v %v with the role %v: status %d: %v", row.method, row.path, role, p.StatusCode, p.body)
		}
	}
}

// takes returns the fields of the forms that a path takes.
func (b *bench) takes(path string) []string {
	b.t.Helper()
	mux := http.NewServeMux()
	for _, r := range b.console.routes {
		mux.Handle(r.Method+" "+r.Pattern, http.NotFoundHandler())
	}
	_, pattern := mux.Handler(httptest.NewRequest(http.MethodPost, path, nil))
	for _, r := range b.console.routes {
		if r.Method+" "+r.Pattern == pattern {
			return r.form
		}
	}
	b.t.Fatalf("no route takes a form at %s", path)
	return nil
}

// Feature V11: a form with a field that its route has not is refused: a misspelt setting would not be set.
func TestUnknownFormFields(t *testing.T) {
	b := newBench(t)
	b.fill(7, 10)
	at := "/campaigns/" + b.started(campaigns.Request{Seqs: []int64{9, 10}, Rate: 1}).ID
	whole := url.Values{"reason": {"INC-7"}, "rate": {"2"}, "seq": {"1"}, "key": {"discard-" + "9f3a12bc-0000-4000-8000-000000000001"}, "do": {"start"}}
	for _, row := range rights {
		if row.method != http.MethodPost {
			continue
		}
		path := strings.Replace(row.path, "/campaigns/x", at, 1)
		for _, field := range []string{"raet", "not-befroe", "csrf", "\u202e"} {
			form := with(only(whole, b.takes(path)...), field, "x")
			b.post(path, form).want(t, http.StatusBadRequest, html.EscapeString(fmt.Sprintf("%q", field)), "Nothing was changed.")
		}
	}
	b.want(letters.StatusWaiting, 10)
	all := b.all()
	testkit.Check(t, len(all) == 1 && all[0].State == campaigns.Running && all[0].Rate == 1, "the campaigns are %+v", all)
}

// Each field of each form that a page shows is one that its route takes.
func TestFormFields(t *testing.T) {
	b := newBench(t)
	b.fill(7, 10)
	b.park()
	at := "/campaigns/" + b.started(campaigns.Request{Seqs: []int64{9, 10}, Rate: 1}).ID
	for _, path := range []string{at, "/sequences/3"} { // the forms of the others are sent by their tests as they are
		page := testkit.Must(url.Parse("http://example.com" + path))
		for _, form := range b.get(path).elements(t, "form") {
			if attribute(form, "method") != "post" {
				continue
			}
			to := testkit.Must(page.Parse(attribute(form, "action")))
			for field := range form.Descendants() {
				name := attribute(field, "name")
				testkit.Check(t, name == "" || slices.Contains(b.takes(to.Path), name), "%s lacks the field %q", to.Path, name)
			}
		}
	}
}

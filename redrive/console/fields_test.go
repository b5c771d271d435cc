package console

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// takes returns the fields of the forms that a path takes.
func (b *bench) takes(path string) []string {
	b.t.Helper()
	route, _ := b.console.match(&request{http: &http.Request{Method: http.MethodPost}, path: path})
	if route != nil {
		return route.form
	}
	b.t.Fatalf("no route takes a form at %s", path)
	return nil
}

// Feature V11: a form with a field that no form of its route has is refused, and changes nothing: a setting that is
// misspelt would not be set.
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
	if all := b.all(); len(all) != 1 || all[0].State != campaigns.Running || all[0].Rate != 1 {
		t.Errorf("the campaigns are %+v", all)
	}
}

// Each field of each form that a page shows is one that its route takes.
func TestFormFields(t *testing.T) {
	b := newBench(t)
	b.fill(7, 10)
	at := "/campaigns/" + b.started(campaigns.Request{Seqs: []int64{9, 10}, Rate: 1}).ID
	all := b.everything()
	done := b.post("/discard", with(b.get("/discard?seq=3").fields(t), "reason", "INC-7")).goes(t, "discards/")
	done, _, _ = strings.Cut(done, "?")
	found := 0
	for _, path := range []string{at, "/redrive?" + all, "/discard?" + all, "/letters/1/edit", done + "?" + all} {
		page, _ := url.Parse("http://example.com" + path)
		for _, form := range b.get(path).elements(t, "form") {
			if attribute(form, "method") != "post" {
				continue
			}
			found++
			to := testkit.Must(page.Parse(attribute(form, "action")))
			for field := range form.Descendants() {
				if name := attribute(field, "name"); name != "" && !slices.Contains(b.takes(to.Path), name) {
					t.Errorf("%s: the form for %s has the field %q, which the route lacks", path, to.Path, name)
				}
			}
		}
	}
	if found < 8 {
		t.Errorf("the pages have %d forms", found)
	}
}

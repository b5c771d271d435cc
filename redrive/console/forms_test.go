package console

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// fields are what a browser would send of the page's last form: the page of an action has one.
func (p page) fields(t testing.TB) url.Values {
	t.Helper()
	var form *html.Node
	for _, found := range p.elements(t, "form") {
		if attribute(found, "method") == "post" {
			form = found
		}
	}
	testkit.Require(t, form != nil, "there is no form: %s", p.body)
	values := url.Values{}
	for field := range form.Descendants() {
		name, value := attribute(field, "name"), attribute(field, "value")
		switch {
		case name == "", field.Data != "input" && field.Data != "textarea":
			continue
		case field.Data == "textarea":
			value = strings.ReplaceAll(strings.ReplaceAll(textOf(field), "\r\n", "\n"), "\n", "\r\n")
		case attribute(field, "type") == "checkbox" && !checked(field):
			continue
		}
		values.Add(name, value)
	}
	return values
}

func checked(field *html.Node) bool {
	return slices.ContainsFunc(field.Attr, func(a html.Attribute) bool { return a.Key == "checked" })
}

// wrong is what the page says is wrong with a field: next to it, and tied to it.
func (p page) wrong(t testing.TB, field string) string {
	t.Helper()
	said := map[string]string{}
	for _, line := range p.elements(t, "p") {
		said[attribute(line, "id")] = textOf(line)
	}
	for _, node := range p.elements(t, "") {
		if attribute(node, "name") != field || attribute(node, "aria-invalid") != "true" {
			continue
		}
		next := node.Parent.NextSibling
		if why := attribute(node, "aria-describedby"); next == nil || attribute(next, "id") != why {
			t.Errorf("what is wrong with %s does not stand next to it", field)
		} else {
			return said[why]
		}
	}
	t.Errorf("the page says nothing of %s: %s", field, p.body)
	return ""
}

// with is a form with other values.
func with(form url.Values, pairs ...string) url.Values {
	changed := url.Values{}
	for name, values := range form {
		changed[name] = values
	}
	for i := 0; i < len(pairs); i += 2 {
		changed[pairs[i]] = []string{pairs[i+1]}
	}
	return changed
}

// everything is the query of all letters that wait.
func (b *bench) everything() string {
	b.t.Helper()
	last := testkit.Must(b.store.Inside().LastSeq(b.t.Context()))
	n := testkit.Must(b.store.Count(b.t.Context(), letters.Filter{}))
	return operate.Selection{Filter: letters.Filter{MaxSeq: last}, Number: n}.Values().Encode()
}

// goes returns the path of the page that an answer leads to.
func (p page) goes(t testing.TB, part string) string {
	t.Helper()
	to := p.Header.Get("Location")
	testkit.Require(t, p.StatusCode == 303 && strings.Contains(to, part),
		"status %d, to %q, want %q: %s", p.StatusCode, to, part, p.body)
	return "/" + strings.TrimLeft(to, "./")
}

// all returns the campaigns that there are.
func (b *bench) all() []campaigns.Campaign {
	b.t.Helper()
	found := testkit.Must(b.campaigns.List(b.t.Context(), campaigns.List{}))
	return found
}

func (b *bench) want(status letters.Status, n int) {
	b.t.Helper()
	fixture.WantCount(b.t, b.store, fixture.Status(status), n)
}

// away takes a table away, so that the database refuses what needs it, until the returned function is called.
func (b *bench) away(table string) (heal func()) {
	b.t.Helper()
	rename := func(from, to string) {
		testkit.Must(b.db.Exec(`ALTER TABLE ` + from + ` RENAME TO ` + to))
	}
	rename(table, table+"_away")
	return func() { rename(table+"_away", table) }
}

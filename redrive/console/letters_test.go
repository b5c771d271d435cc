package console

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/web"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// elements are the elements of a page, in their order.
func (p page) elements(t testing.TB, name string) (found []*html.Node) {
	t.Helper()
	root := testkit.Must(html.Parse(strings.NewReader(p.body)))
	for node := range root.Descendants() {
		if node.Type == html.ElementNode && (name == "" || node.Data == name) {
			found = append(found, node)
		}
	}
	return found
}

func attribute(node *html.Node, name string) string {
	for _, a := range node.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// fieldsOf is the query that a button of the page sends: the fields of its form, and its own.
func (p page) fieldsOf(t testing.TB, label string) url.Values {
	t.Helper()
	for _, button := range p.elements(t, "button") {
		if textOf(button) != label {
			continue
		}
		form := button
		for form.Data != "form" {
			form = form.Parent
		}
		q := url.Values{}
		for field := range form.Descendants() {
			if field.Data == "input" && (attribute(field, "type") == "hidden" || checked(field)) {
				q.Add(attribute(field, "name"), attribute(field, "value"))
			}
		}
		return q
	}
	t.Fatalf("there is no button %q: %s", label, p.body)
	return nil
}

func textOf(node *html.Node) string {
	var b strings.Builder
	for n := range node.Descendants() {
		if n.Type == html.TextNode {
			b.WriteString(n.Data)
		}
	}
	return b.String()
}

// seqs are the letters of all pages of a list, from p on. Each page says that n match.
func (b *bench) seqs(p page, n int) (seqs []string) {
	b.t.Helper()
	for {
		p.want(b.t, http.StatusOK, say("%s letter matches.|%s letters match.", n))
		for _, box := range p.elements(b.t, "input") {
			if attribute(box, "name") == "seq" && attribute(box, "type") == "checkbox" {
				seqs = append(seqs, attribute(box, "value"))
			}
		}
		next := p.linked(b.t, "Next page")
		if next == "" {
			return seqs
		}
		p = b.get(next)
	}
}

// linked is the path that a link of the list leads to, or nothing.
func (p page) linked(t testing.TB, label string) string {
	t.Helper()
	for _, a := range p.elements(t, "a") {
		if textOf(a) == label {
			return strings.TrimPrefix(attribute(a, "href"), ".")
		}
	}
	return ""
}

// Feature V11: the pages of a list have each letter once, in both orders, and filter as the store does.
func TestLettersPages(t *testing.T) {
	b := newBench(t)
	b.fill(7, 130)
	now := time.Now()
	b.console.now = func() time.Time { return now }
	for _, query := range []string{"", "topic=refunds&rows=7", "class=permanent&class=invalid&rows=20", "until=30m&rows=11", "metadata=tenant%3Dblue&status=all"} {
		q := testkit.Must(url.ParseQuery(query))
		f := testkit.Must(operate.ParseFilter(q, now))
		f.Limit = letters.MaxLimit
		heads, err := b.store.Heads(t.Context(), f)
		testkit.Require(t, err == nil && len(heads) != 0, "%s: %d letters, %v", query, len(heads), err)
		var want []string
		for _, h := range heads {
			want = append(want, id(h.Seq))
		}
		p := b.get("/letters?" + query)
		got := b.seqs(p, len(want))
		testkit.Check(t, slices.Equal(got, want), "%s: the pages have %v, want %v", query, got, want)
		slices.Reverse(want)
		got = b.seqs(b.get(p.linked(t, "Newest first")), len(want))
		testkit.Check(t, slices.Equal(got, want), "%s: the pages of the newest first have %v, want %v", query, got, want)
	}
	b.get("/letters?order=up").want(t, http.StatusBadRequest, "use oldest or newest")
	b.get("/letters?since=yesterday").want(t, http.StatusBadRequest, "use a time ago")
}

// Feature V11: a person finds nothing out by searching for what the person may not see, or sees masked.
func TestFilterNeedsTheRightToLook(t *testing.T) {
	b, open := newBench(t), newBench(t, func(c *Config) { c.Privacy = privacy.None() })
	fixture.Publish(t, b.store, "orders.dlq", fixture.Letter("1", `{"password":"SECRETC"}`, key("api-key", "SECRETD"), key("customer", "4711")))
	const without = "You may not see payloads and metadata, so you cannot search in them, and not in texts of errors either."
	for _, row := range []struct{ query, look string }{ // why it is refused to whom may look
		{"payload=SECRETC", "Values of payloads are masked for you, so you cannot search in payloads. That needs the right to operate."},
		{"metadata=api-key%3DSECRETD", "The value of this metadata is masked for you, so you cannot search for it. That needs the right to operate."},
		{"metadata=customer%3D4711", ""},
		{"text=unknown", ""},
	} {
		for _, path := range []string{"/letters?", "/causes?"} {
			for role, why := range map[Role]string{LookWithoutPayload: without, Look: row.look, Operate: ""} {
				status := map[bool]int{true: http.StatusForbidden, false: http.StatusOK}[why != ""]
				b.get(path+row.query, as(role)).want(t, status, why)
			}
			open.get(path+row.query, as(Look)).want(t, http.StatusOK)
		}
	}
	for role, hidden := range map[Role][]string{LookWithoutPayload: {"payload", "metadata", "text"}, Look: {"payload"}, Operate: nil} {
		p := b.get("/letters", as(role))
		for _, name := range lookFields {
			testkit.Check(t, slices.Contains(hidden, name) != strings.Contains(p.body, `<input name="`+name+`"`),
				"%v is offered to %v: %v", name, role, !slices.Contains(hidden, name))
		}
	}
	one := testkit.Must(b.campaigns.Start(t.Context(), campaigns.Request{Filter: letters.Filter{Payload: "SECRETC"}, Act: campaigns.Act{By: "ann", Reason: "INC-7"}}))
	for role, sees := range map[Role]bool{LookWithoutPayload: false, Look: false, Operate: true} {
		p := b.get("/campaigns/"+one.ID, as(role))
		testkit.Check(t, strings.Contains(p.body, "SECRETC") == sees &&
			strings.Contains(p.body, "Text in the payload (reads each letter): hidden") != sees,
			"%v sees what was searched for: %v: %v", role, !sees, p.body)
	}
}

// Feature V11: an address with a field that no page has is refused: a filter that is misspelt would choose all.
func TestUnknownFields(t *testing.T) {
	b := newBench(t)
	b.fill(7, 10)
	for _, route := range rights {
		if route.method != http.MethodGet || route.least == nothing {
			continue
		}
		at := route.path + "?"
		if strings.Contains(route.path, "?") {
			at = route.path + "&"
		}
		for _, field := range []string{"reason", "handlers", "utm_source", "\u202e"} {
			b.get(at+url.QueryEscape(field)+"=x").want(t, http.StatusBadRequest, html.EscapeString(fmt.Sprintf("%q", field)))
		}
	}
	for _, damaged := range []string{"?text=%ff", "?text=%zz", "?text=" + strings.Repeat("x", web.MaxQuery), "?view=hex", "/1?handler=billing"} {
		b.get("/letters"+damaged).want(t, http.StatusBadRequest)
	}
	b.post("/letters/1/payload?reason=INC-7", url.Values{}).want(t, http.StatusBadRequest, `&#34;reason&#34;`)
	b.get("/letters?handler=billing&rows=5&after=1&exact=1&seq=2").want(t, http.StatusOK)
}

// Feature V11: a value that stands in an address many times counts once, and the page of many values is bounded.
func TestFilterIsBounded(t *testing.T) {
	b := newBench(t)
	b.fill(7, 10)
	p := b.get("/letters?"+strings.Repeat("status=all&", 5000)).want(t, http.StatusOK)
	n := strings.Count(p.body, "Remove the condition")
	testkit.Check(t, n == 1 && len(p.body) <= 100<<10, "%d conditions, %d bytes", n, len(p.body))
	q := url.Values{}
	for i := range letters.MaxListed {
		q.Add("topic", fmt.Sprintf("a topic of %050d", i))
	}
	p = b.get("/letters?"+q.Encode()).want(t, http.StatusOK, say("%s more", letters.MaxListed-mostChips))
	testkit.Equal(t, "conditions", strings.Count(p.body, "Remove the condition"), mostChips)
	q.Add("topic", "one more")
	b.get("/letters?"+q.Encode()).want(t, http.StatusBadRequest, "at most 500")
}

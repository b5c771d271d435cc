package console

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/ThreeDotsLabs/watermill/message"
	"golang.org/x/net/html"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// hostile are texts that try to become more than text. Each has the mark, by which a test finds it.
var hostile = []string{
	`<script>alert("mark")</script>`,
	`"><img src=x onerror=alert("mark")>`,
	`' onmouseover='alert("mark")`,
	`</textarea></title></style></svg><svg onload=alert("mark")>`,
	`javascript:alert("mark")`,
	`data:text/html,<script>alert("mark")</script>`,
	`{{.Person}} {{template "layout" .}} mark`,
	`<!--mark`, `]]>mark`, `&lt;b&gt;mark`, `%3Cscript%3Emark`, `\u003cscript\u003emark`,
	"mark\u202egnp.exe\u2066\u2069\u200f\u061c",
	"mark\x00\x1b[2J\x07\x7f\u0085\u2028\u2029\ufeff\u200b",
	"mark\xff\xfe\xc3\x28",
	"mark" + strings.Repeat("\u0301", 500),
	"mark " + strings.Repeat("W", 100_000),
	"=cmd|' /C calc'!A0 mark",
	"../../../mark?x=y#z", "//evil.example/mark", "mark\r\nSet-Cookie: a=b\r\n\r\n<html>",
}

// infest stores letters whose every field is hostile, and one with 10,000 keys of metadata.
func (b *bench) infest() {
	b.t.Helper()
	for i, text := range hostile {
		msg := message.NewMessage(fmt.Sprint(i)+text, []byte(text))
		msg.Metadata.Set("key"+text, text)
		l := poison.Letter{Original: msg, Origin: poison.Origin{Topic: "orders" + text, Handler: "billing" + text, ConsumerGroup: text, MessageID: text}}
		l.Failure.Reason, l.Failure.Description, l.Failure.Type, l.Failure.Stack, l.Failure.StackHash = "reason"+text, "description"+text, "type"+text, text, text
		l.Failure.FirstFailedAt, l.Failure.LastFailedAt = time.Now().Add(-time.Hour), time.Now()
		testkit.NoError(b.t, b.store.Publish("orders.dlq", l.Encode()))
	}
	many := message.NewMessage("many", make([]byte, 1<<20))
	for i := range 10_000 {
		many.Metadata.Set(fmt.Sprintf("key-%d<b>mark", i), hostile[i%12])
	}
	fixture.Publish(b.t, b.store, "orders.dlq", many)
	heads := testkit.Must(b.store.Heads(b.t.Context(), letters.Filter{}))
	for i, h := range heads[:len(hostile)] {
		reason := strings.ToValidUTF8(strings.ReplaceAll(hostile[i], "\x00", ""), "")
		reason = reason[:min(len(reason), 900)]
		act := letters.Act{By: "by" + hostile[i], Reason: reason}
		testkit.Must(hidden.Of(b.store).Record(b.t.Context(), nil, letters.EventShown, act, h.Seq))
		testkit.Must(b.campaigns.Start(b.t.Context(), campaigns.Request{Seqs: []int64{h.Seq}, To: "orders",
			Act: campaigns.Act{By: reason, Reason: reason}}))
	}
}

// Feature V11: nothing that a letter, a person or a campaign carries becomes more than text on a page.
func TestHostileValues(t *testing.T) {
	breakers := func() (all []circuit.Status) {
		for _, text := range hostile {
			all = append(all, circuit.Status{Handler: text, Scope: text, Reason: text, Cause: text, Since: time.Now()})
		}
		return all
	}
	b := newBench(t, func(c *Config) { c.Breakers = breakers })
	b.infest()
	fleet := fleetOf(t, map[string]*bench{"a": b})
	for path, p := range map[string]page{"/": b.get("/"), "fleet": fleet.get("/"), "/causes": b.get("/causes?status=all"),
		"/letters": b.get("/letters?status=all&rows=500")} {
		p.want(t, http.StatusOK, "mark", "&lt;script&gt;").wantHarmless(t, path)
		testkit.Check(t, len(p.body) <= 1<<20, "%s: %d bytes", path, len(p.body))
	}
	for _, text := range hostile[:12] { // what stands in an address comes back in the form
		path := "/letters?handler=" + url.QueryEscape(text)
		b.get(path).want(t, http.StatusOK).wantHarmless(t, path)
	}
	b.get("/%3cscript%3emark").want(t, http.StatusNotFound).wantHarmless(t, "not found")
}

// wantHarmless fails the test if the page has anything that a template did not write.
func (p page) wantHarmless(t testing.TB, what string) {
	t.Helper()
	scripts := 0
	for _, node := range p.elements(t, "") {
		switch node.Data {
		case "script":
			if scripts++; node.FirstChild != nil || !strings.Contains(attribute(node, "src"), "static/"+scriptName) {
				t.Errorf("%s: a script that is not the console's", what)
			}
		case "img", "iframe", "object", "embed", "style", "b", "base", "math", "template":
			t.Errorf("%s: an element %s", what, node.Data)
		}
		for _, a := range node.Attr {
			name := strings.ToLower(a.Key)
			switch {
			case strings.HasPrefix(name, "on"), name == "style", name == "srcdoc":
				t.Errorf("%s: %s has the attribute %s", what, node.Data, a.Key)
			case slices.Contains([]string{"href", "src", "action", "formaction", "xlink:href"}, name):
				testkit.Check(t, strings.HasPrefix(a.Val, "./") || strings.HasPrefix(a.Val, "../") ||
					strings.HasPrefix(a.Val, "#") || strings.HasPrefix(a.Val, "?view="), "%s: %s leads to %q", what, node.Data, a.Val)
			}
		}
	}
	testkit.Check(t, scripts == 1, "%s: %d scripts", what, scripts)
	root := testkit.Must(html.Parse(strings.NewReader(p.body)))
	for node := range root.Descendants() {
		if node.Type != html.TextNode && node.Type != html.ElementNode {
			continue
		}
		texts := []string{node.Data}
		if node.Type == html.ElementNode && node.Data != "input" { // an address of a person's own comes back in its field
			for _, a := range node.Attr {
				texts = append(texts, a.Val)
			}
		}
		for _, text := range texts {
			obeyed := func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }
			testkit.Require(t, strings.IndexFunc(text, obeyed) < 0, "%s: %s has %q", what, node.Parent.Data, text)
		}
	}
}

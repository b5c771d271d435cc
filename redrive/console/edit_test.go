package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func key(name, value string) func(*poison.Letter) {
	return func(l *poison.Letter) { l.Original.Metadata.Set(name, value) }
}

// Feature V11: a letter is edited as text, shown as a difference, and redriven on record. The rest keeps its bytes.
func TestEdit(t *testing.T) {
	b := newBench(t)
	const payload = "\n{\n\t\"n\": 90071992547409931.10,\n\t\"to\": \"<Zoë>\"\n}\n"
	fixture.Publish(t, b.store, "orders.dlq", fixture.Letter("1", payload, key("trace", "x"), key("note", "two\nlines")))
	out := &fixture.Outbox{}
	b.works(out)
	p := b.get("/letters/1/edit")
	p.want(t, http.StatusOK, "&lt;Zoë&gt;")
	form := p.fields(t)
	got := strings.ReplaceAll(form.Get("payload"), "\r\n", "\n")
	testkit.Require(t, got == payload, "the form has %q", got)
	b.post("/letters/1/edit", with(form, "do", "diff")).want(t, http.StatusBadRequest, "Nothing is changed yet. To redrive the letter as it is, use Redrive.")
	p = b.post("/letters/1/edit", with(form, "do", "diff", "payload", strings.Replace(form.Get("payload"), "<Zoë>", "<Ann>", 1),
		"set", "tenant=green\r\nschema=2\r\n", "unset", "trace"))
	p.want(t, http.StatusOK, "<del>-   &#34;to&#34;: &#34;&lt;Zoë&gt;&#34;</del>", "<ins>+   &#34;to&#34;: &#34;&lt;Ann&gt;&#34;</ins>", "<ins><bdi>green</bdi></ins>", "(removed)")
	testkit.Require(t, len(b.all()) == 0, "a difference began a campaign")
	form = p.fields(t)
	b.post("/letters/1/edit", with(form, "do", "start", "reason", " ")).want(t, http.StatusBadRequest, "The reason is empty", "&lt;Ann&gt;")
	at := b.post("/letters/1/edit", with(form, "do", "start", "reason", "INC-7")).goes(t, "campaigns/")
	testkit.Eventually(t, "it is redriven", func() bool { return strings.Contains(b.get(at).body, "It is through with all letters.") })
	sent := out.All()
	testkit.Require(t, len(sent) == 1 && string(sent[0].Msg.Payload) == strings.Replace(payload, "<Zoë>", "<Ann>", 1),
		"%+v", sent)
	m := sent[0].Msg.Metadata
	testkit.Check(t, m.Get("tenant") == "green" && m.Get("trace") == "" && m.Get("schema") == "2" &&
		m.Get("note") == "two\nlines", "%v", m)
	history, err := b.store.History(t.Context(), 1)
	testkit.Check(t, err == nil && len(history) >= 3 && history[2].Kind == letters.EventEdited &&
		history[2].By == "ann" && strings.Contains(history[2].Detail, "Ann"), "%+v %v", history, err)
	testkit.Equal(t, "the stored letter", string(testkit.Must(b.store.Get(t.Context(), 1)).Original.Payload), payload)
	// sent again, it leads to the same campaign; another form says that the letter has changed: it is redriven once
	again := b.post("/letters/1/edit", with(form, "do", "start", "reason", "INC-7")).goes(t, "campaigns/")
	b.post("/letters/1/edit", with(form, "do", "start", "reason", "INC-7", "key", "9f3a12bc-0000-4000-8000-000000000001")).want(t, http.StatusConflict, "redriven, by", "&lt;Ann&gt;")
	testkit.Check(t, len(out.All()) == 1 && again == at, "it was published twice")
}

// Feature V11: of two persons on one letter the second is told who changed it, publishes nothing, and loses no text.
func TestEdit_twoPersons(t *testing.T) {
	b := newBench(t)
	fixture.Publish(t, b.store, "orders.dlq", fixture.Letter("1", "one"), fixture.Letter("2", "two"))
	first := with(b.get("/letters/1/edit").fields(t), "payload", "ann's", "reason", "INC-7", "do", "start")
	second := with(b.get("/letters/1/edit", by("bob", Operate)).fields(t), "payload", "bob's", "reason", "INC-8", "do", "start")
	b.post("/letters/1/edit", first).goes(t, first.Get("key"))
	b.post("/letters/1/edit", second, by("bob", Operate)).want(t, http.StatusConflict, "The letter cannot be redriven now.", "another campaign has them:", "bob&#39;s", `value="INC-8"`)
	b.post("/letters/1/edit", first).goes(t, first.Get("key")) // sent twice
	testkit.Check(t, len(b.all()) == 1 && b.all()[0].Selected == 1, "%+v", b.all())
	third := with(b.get("/letters/2/edit").fields(t), "payload", "ann's", "reason", "INC-7", "do", "start")
	testkit.Must(b.store.MarkAll(t.Context(), oneLetter(2, nil), letters.StatusDiscarded, letters.Act{By: "eve", Reason: "of no <use>"}))
	b.post("/letters/2/edit", third).want(t, http.StatusConflict, "discarded, by eve", "of no &lt;use&gt;", "ann&#39;s")
}

// Feature V11: a payload that is no text is not edited, nor in the form, and keeps its bytes if metadata are edited.
func TestEdit_bytes(t *testing.T) {
	b := newBench(t)
	const payload = "\x00\xff\r\n{}"
	fixture.Publish(t, b.store, "orders.dlq", fixture.Letter("1", payload))
	out := &fixture.Outbox{}
	b.works(out)
	p := b.get("/letters/1/edit").want(t, http.StatusOK, "no text in UTF-8")
	form := with(p.fields(t), "payload", "forged", "set", "tenant=green", "reason", "INC-7", "do", "start")
	at := b.post("/letters/1/edit", form).goes(t, "campaigns/")
	testkit.Eventually(t, "it is redriven", func() bool { return strings.Contains(b.get(at).body, "It is through with all letters.") })
	sent := out.All()
	testkit.Check(t, len(sent) == 1 && string(sent[0].Msg.Payload) == payload &&
		sent[0].Msg.Metadata.Get("tenant") == "green", "%+v", sent)
}

// Feature V11: what is masked is edited after the person said why, on record. What was typed wrong is refused.
func TestEdit_masked(t *testing.T) {
	b := newBench(t)
	fixture.Publish(t, b.store, "orders.dlq", fixture.Letter("1", `{"password":"secret-1"}`))
	p := b.get("/letters/1/edit")
	p.want(t, http.StatusOK, "To edit it you must see it without masks. The record keeps that you did.")
	p.wantNot(t, "secret-1", privacy.Mark)
	b.post("/letters/1/edit", with(p.fields(t), "do", "show")).want(t, http.StatusBadRequest, "The reason is empty")
	p = b.post("/letters/1/edit", with(p.fields(t), "do", "show", "reason", "INC-7")).want(t, http.StatusOK, "secret-1")
	events := testkit.Must(b.store.Audit(t.Context(), letters.EventFilter{Kinds: []letters.EventKind{letters.EventShown}}))
	testkit.Check(t, len(events) == 1 && events[0].By == "ann" && events[0].Reason == "INC-7", "%+v", events)
	form := p.fields(t)
	for says, pair := range map[string][2]string{
		"control characters": {"payload", "a\x00"}, "too large": {"payload", strings.Repeat("x", 300<<10)}, "write key=value": {"set", "x"},
		"own": {"set", poison.KeyRedriveCount + "=1"},
	} {
		b.post("/letters/1/edit", with(form, pair[0], pair[1], "do", "diff")).want(t, http.StatusBadRequest, says)
	}
	b.get("/letters/99/edit").want(t, http.StatusNotFound)
	b.get("/letters/x/edit").want(t, http.StatusNotFound)
}

// Feature V11: no form that is sent makes the page show what is masked: that needs a reason, on record.
func TestEdit_forged(t *testing.T) {
	b := newBench(t)
	fixture.Publish(t, b.store, "orders.dlq", fixture.Letter("1", `{"password":"secret-1"}`, key("api-key", "secret-2")))
	for _, do := range []string{"", "diff", "start"} {
		for _, typed := range []string{"version", "payload", "set"} {
			p := b.post("/letters/1/edit", url.Values{"do": {do}, typed: {"x"}, "reason": {"INC-7"}})
			p.want(t, http.StatusConflict).wantNot(t, "secret-")
		}
	}
	b.wantShown(0)
}

// wantShown fails the test unless letters were shown without masks so often.
func (b *bench) wantShown(n int) {
	b.t.Helper()
	events, err := b.store.Audit(b.t.Context(), letters.EventFilter{Kinds: []letters.EventKind{letters.EventShown}})
	testkit.Check(b.t, err == nil && len(events) == n, "%+v %v", events, err)
}

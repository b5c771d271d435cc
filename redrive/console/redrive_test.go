package console

import (
	"context"
	"html"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// works runs a worker of the service until the test ends.
func (b *bench) works(target message.Publisher) {
	b.t.Helper()
	w := testkit.Must(campaigns.NewWorker(b.campaigns, target, campaigns.WorkerConfig{Poll: 5 * time.Millisecond}))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		err := w.Run(ctx)
		testkit.Check(b.t, err == nil, "%v", err)
	})
	b.t.Cleanup(func() { cancel(); running.Wait() })
}

// Feature V11: an incident is closed by forms alone, from the selection to the verdict and the letters that come back.
func TestIncident(t *testing.T) {
	b := newBench(t)
	fixture.Publish(t, b.store, "orders.dlq", append(fixture.Several(20), fixture.Letter("other", "{}", fixture.From("payments")))...)
	out := &fixture.Outbox{Before: func(_ string, msg *message.Message) error {
		if !strings.HasSuffix(msg.UUID, "3") {
			return nil
		}
		l := poison.Read(msg) // it fails again
		l.Failure.Reason = "still_broken"
		return b.store.Publish("orders.dlq", l.Encode())
	}}
	b.works(out)
	dry := b.get("/redrive?" + b.everything())
	dry.want(t, http.StatusOK, "20 letters would be redriven", "1 letter: "+"the campaigns may not publish to the topic"+" <bdi>payments</bdi>", "Redrive 20 letters", "no_such_customer", "<bdi>id-0</bdi>")
	testkit.Require(t, len(b.all()) == 0, "a dry run began a campaign")
	usual := dry.fields(t)
	form := with(usual, "rate", "1,000", "canary", "", "stop-at", "50%", "do", "plan")
	again := b.post("/redrive", form).want(t, http.StatusOK, `name="rate" inputmode="decimal" value="1,000"`)
	at := b.post("/redrive", with(again.fields(t), "reason", "INC-7", "do", "start")).goes(t, "campaigns/")
	var seen page
	testkit.Eventually(t, "the verdict", func() bool {
		if b.all()[0].FailedAgain != 2 { // the page comes after it, and says so too
			return false
		}
		seen = b.get(at)
		return strings.Contains(seen.body, "It is through with all letters.") && strings.Contains(seen.body, "still_broken")
	})
	seen.want(t, http.StatusOK, "INC-7", "20 of 20", "came back", "What came back, by cause", "redrive-id=", "the campaigns may not publish to the topic")
	testkit.Equal(t, "messages", len(out.IDs()), 20)
	c := b.all()[0]
	testkit.Check(t, c.Request.By == "ann" && c.Request.Rate == 1000 && c.Request.StopAt == 0.5 && c.FailedAgain == 2,
		"%+v", c)
	moving := b.get(at, func(r *http.Request) { r.Header.Set(live, "1") })
	moving.want(t, http.StatusOK, "It is through with all letters.").wantNot(t, "<html", "<form")
}

// Feature V11: a form that is sent twice starts one campaign, also at the same time, and both answers lead to it.
func TestRedrive_twice(t *testing.T) {
	b := newBench(t)
	b.fill(1, 100)
	form := with(b.get("/redrive?"+b.everything()).fields(t), "reason", "INC-7", "do", "start")
	places := make(chan string)
	for range 3 {
		go func() { places <- b.post("/redrive", form).Header.Get("Location") }()
	}
	first := <-places
	for range 2 {
		to := <-places
		testkit.Check(t, to == first && strings.Contains(to, form.Get("key")), "%q and %q", first, to)
	}
	testkit.Check(t, len(b.all()) == 1 && b.all()[0].Selected == 100, "%+v", b.all())
	// the browser's way back, and another rate
	other := b.post("/redrive", with(form, "rate", "2"))
	other.want(t, http.StatusConflict, say("This form started campaign %s before, with other settings. Nothing was changed. Start again for another campaign.", form.Get("key")), `value="2"`)
	testkit.Check(t, other.fields(t).Get("key") != form.Get("key") && b.all()[0].Request.Rate == usualRate,
		"the same key, or the settings of %+v were changed", b.all())
	// a second person, with a form of the same letters: none is left
	b.post("/redrive", with(form, "key", "9f3a12bc-0000-4000-8000-000000000001")).want(t, http.StatusConflict, "No letter of the selection can be redriven now.", "another campaign has them:", `value="INC-7"`)
}

// Feature V11: what cannot be is refused with a reason, and what was typed stays. Nothing begins.
func TestRedrive_refused(t *testing.T) {
	b := newBench(t)
	b.fill(1, 3)
	form := with(b.get("/redrive?"+b.everything()).fields(t), "do", "start", "reason", `"> <b>INC</b>`)
	for says, pair := range map[string][2]string{
		"The reason is empty":                         {"reason", "  "},
		"is no number from 0 on":                      {"rate", "fast"},
		"it must be 0.001 to 1000000":                 {"rate", "0.0001"},
		"&#34;1,5&#34; is no number":                  {"rate", "1,5"},
		"is no whole number from 0 on":                {"max", "-1"},
		"&#34;1.5&#34; is no whole number":            {"canary", "1.5"},
		"&#34;soon&#34; is no time":                   {"canary-wait", "soon"},
		"use a time to come":                          {"not-before", "2020-01-01"},
		"A share has at most 100 percent":             {"stop-at", "101"},
		"&#34;half&#34; is no number":                 {"stop-at", "half"},
		"may not publish to this topic":               {"to", "admin"},
		"is no patch":                                 {"patch", "{"},
		"write key=value":                             {"set", "x"},
		"Spillway&#39;s own":                          {"set", poison.KeyRedriveCount + "=0"},
		"&#34;" + poison.KeyRedriveCount + "&#34; is": {"unset", poison.KeyRedriveCount},
		"at most 256":                                 {"concurrency", "9999"},
		"it may have 1024":                            {"reason", strings.Repeat("x", 2000)},
	} {
		p := b.post("/redrive", with(form, pair[0], pair[1]))
		p.want(t, http.StatusBadRequest, say("Nothing was started. %s field is to be corrected: it says what is wrong.|Nothing was started. %s fields are to be corrected: they say what is wrong.", 1))
		got := p.wrong(t, pair[0])
		testkit.Check(t, strings.Contains(html.EscapeString(got), says), "%s: the field says %q, want %q", pair[0], got, says)
		p.wantNot(t, "Request.", "campaigns: ")
		testkit.Check(t, pair[0] == "reason" || strings.Contains(p.body, `value="&#34;&gt; &lt;b&gt;INC&lt;/b&gt;"`),
			"%s: the reason is lost: %s", says, p.body)
		if strings.Contains(says, "number") { // what it says to write is not what is refused
			testkit.Check(t, !strings.Contains(got, "or "+pair[1]), "%q is refused, and asked for: %s", pair[1], got)
		}
	}
	b.post("/redrive", with(form, "key", "no id")).want(t, http.StatusBadRequest, "Request.ID") // no person types it
	b.post("/redrive", with(form, "patch", strings.Repeat("x", maxEditForm))).want(t, http.StatusRequestEntityTooLarge)
	testkit.Check(t, len(b.all()) == 0, "%+v", b.all())
	for _, query := range []string{"", "seq=0", "take=all", "take=all&upto=1", "take=all&upto=1&count=1&class=x"} {
		b.get("/redrive?"+query).want(t, http.StatusBadRequest)
	}
}

// Feature V6, V11: an edit of many letters is shown as a difference of a sample, and redriven.
func TestRedrive_edit(t *testing.T) {
	b := newBench(t)
	fixture.Publish(t, b.store, "orders.dlq", fixture.Letter("1", `{"currency":"DM","token":"secret-1"}`), fixture.Letter("2", "no JSON"))
	out := &fixture.Outbox{}
	b.works(out)
	form := with(b.get("/redrive?"+b.everything()).fields(t), "patch", `{"currency":"EUR"}`, "set", "tenant=green\r\nschema=2", "unset", "", "do", "plan")
	p := b.post("/redrive", form)
	p.want(t, http.StatusOK, "<ins>+   &#34;currency&#34;: &#34;EUR&#34;", "<del>- ", "<ins><bdi>green</bdi></ins>", "does not fit 1 of the 2")
	p.wantNot(t, "secret-1")
	at := b.post("/redrive", with(p.fields(t), "reason", "INC-7", "do", "start")).goes(t, "campaigns/")
	testkit.Eventually(t, "it is finished", func() bool { return strings.Contains(b.get(at).body, "It is through with all letters.") })
	b.get(at).want(t, http.StatusOK, "Left behind", "edit: ", "EUR")
	b.get(at, as(LookWithoutPayload)).want(t, http.StatusOK, "Left behind")
	b.get(at, as(LookWithoutPayload)).wantNot(t, "EUR")
	sent := out.All()
	testkit.Check(t, len(sent) == 1 && string(sent[0].Msg.Payload) == `{"currency":"EUR","token":"secret-1"}` &&
		sent[0].Msg.Metadata.Get("schema") == "2", "%+v", sent)
}

package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/browser"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// park parks the messages of fixture.Park.
func (b *bench) park() {
	b.t.Helper()
	fixture.Park(b.t, b.db, b.store.Inside().Service())
}

// Feature V11: keys whose messages wait are listed, with a help, and without keys for who may not look at messages.
func TestSequences(t *testing.T) {
	b := newBench(t)
	b.get("/sequences").want(t, http.StatusOK, "No message waits in the order of its key.", "until a person decides")
	b.get("/sequences/1").want(t, http.StatusNotFound, "handled, or given up, meanwhile")
	b.park()
	b.get("/sequences").want(t, http.StatusOK, "customer-1", "customer-7", "no key", ">held<", ">late<", "&lt;script&gt;", `href="./sequences/3"`)
	b.get("/sequences?rows=2").want(t, http.StatusOK, "There may be more keys", "Show more keys")
	b.get("/sequences/4").want(t, http.StatusOK, "customer-7", "order-2", "order-3", "/sequences/3/release", "billing")
	for _, path := range []string{"/sequences", "/sequences/3"} {
		p := b.get(path, as(LookWithoutPayload))
		if p.want(t, http.StatusOK, "hidden"); strings.Contains(p.body, "customer-7") {
			t.Errorf("%s shows a key: %s", path, p.body)
		}
		if p := b.get(path, as(Look)); strings.Contains(p.body, "<form") {
			t.Errorf("%s has a form for who may only look", path)
		}
	}
	if p := b.get("/sequences/1"); strings.Contains(p.body, "/release") {
		t.Error("what is not held cannot be released")
	}
}

// Feature V11: a letter says how many messages of its key wait in order.
func TestBehindLetter(t *testing.T) {
	b := newBench(t)
	of := func(partition string, key []byte) func(*poison.Letter) {
		return func(l *poison.Letter) {
			l.Origin.Topic, l.Origin.ConsumerGroup, l.Origin.Partition, l.Origin.Key = "orders", "billing", partition, key
		}
	}
	fixture.Publish(t, b.store, "orders.dlq", fixture.Letter("1", "{}", of("3", []byte("customer-7"))), fixture.Letter("2", "{}", of("4", []byte("customer-7"))),
		fixture.Letter("3", "{}", of("none", []byte("customer-7"))), fixture.Letter("4", "{}", of("3", nil)))
	const mark = "Waiting in order"
	for range 2 { // without the table, and with it
		for seq := 2; seq <= 4; seq++ {
			if p := b.get(fmt.Sprintf("/letters/%d", seq)); p.StatusCode != http.StatusOK || strings.Contains(p.body, mark) {
				t.Errorf("letter %d, of another key: %d %s", seq, p.StatusCode, p.body)
			}
		}
		if len(testkit.Must(b.console.desk.Sequences(t.Context(), 1))) == 0 {
			b.park()
		}
	}
	b.get("/letters/1").want(t, http.StatusOK, mark, `/sequences/3">2 messages of this key`)
}

// Feature V11: a key is released, its message skipped or discarded, each with a reason, which the record has, once.
func TestDecideSequences(t *testing.T) {
	b := newBench(t)
	b.park()
	for _, step := range []struct {
		path   string
		form   map[string][]string
		status int
		says   string
	}{
		{"/sequences/3/release", nil, 400, "The reason is empty"},
		{"/sequences/1/release", reason, 409, "tried again by itself"},
		{"/sequences/2/skip", reason, 409, "comes before"},
		{"/sequences/99/skip", reason, 404, "handled, or given up, meanwhile"},
		{"/sequences/3/release", reason, 303, ""},
		{"/sequences/3/discard", reason, 409, "was decided before"},
		{"/sequences/1/skip", reason, 303, ""},
		{"/sequences/5/discard", reason, 303, ""},
	} {
		p := b.post(step.path, step.form, by("bob", Operate))
		if p.want(t, step.status, step.says); step.status == 303 {
			p.goes(t, step.path[1:strings.LastIndexByte(step.path, '/')])
		}
	}
	b.get("/sequences/3").want(t, http.StatusOK, "Decided: release", "<bdi>bob</bdi>", "INC-7")
	events := testkit.Must(b.store.Audit(t.Context(), letters.EventFilter{Kinds: []letters.EventKind{letters.EventSequence}}))
	if len(events) != 3 || events[0].By != "bob" || events[0].Reason != "INC-7" || events[0].MessageID != "order-2" ||
		events[0].Detail != "release of orders/3 at 2" || events[2].MessageID != "order-4" {
		t.Errorf("%+v", events)
	}
	b.get("/audit?kind=sequence").want(t, http.StatusOK, "order-2", "release of orders/3 at 2")
}

// Feature V11: on a telephone the list is not wider than its window, and a key is released with script and without.
func testSequences(t *testing.T, engine *browser.Browser) {
	b := newBench(t)
	b.park()
	url := b.serve()
	for _, width := range []int{1280, 390} {
		p := engine.Page(t, browser.Options{Width: width, Height: 844, NoScript: width == 390})
		for _, path := range []string{"sequences", "sequences/3", "sequences/5"} {
			p.Open(url + "/" + path)
			if wide := browser.Eval[int](p, "document.documentElement.scrollWidth"); wide > width {
				t.Errorf("%s is %d wide in a window of %d", path, wide, width)
			}
			shot(t, p, fmt.Sprintf("%s-%d", strings.ReplaceAll(path, "/", "-"), width))
		}
	}
}

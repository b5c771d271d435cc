package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
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
		p.want(t, http.StatusOK, "hidden")
		p.wantNot(t, "customer-7")
		b.get(path, as(Look)).wantNot(t, "<form")
	}
	b.get("/sequences/1").wantNot(t, "/release")
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
			p := b.get(fmt.Sprintf("/letters/%d", seq))
			testkit.Check(t, p.StatusCode == http.StatusOK && !strings.Contains(p.body, mark),
				"letter %d, of another key: %d %s", seq, p.StatusCode, p.body)
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
	testkit.Check(t, len(events) == 3 && events[0].By == "bob" && events[0].Reason == "INC-7" &&
		events[0].MessageID == "order-2" && events[0].Detail == "release of orders/3 at 2" &&
		events[2].MessageID == "order-4", "%+v", events)
	b.get("/audit?kind=sequence").want(t, http.StatusOK, "order-2", "release of orders/3 at 2")
}

package campaigns_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V6: a message is edited on its way, its other values as they are written, on record. One that the edit does not fit waits.
func TestEdit(t *testing.T) {
	store := fixture.SQLite.NewStore(t)
	c := config
	c.Edits = map[string]func(*message.Message) error{
		"sign": func(msg *message.Message) error { msg.Metadata.Set("signed", "yes"); return nil },
		"id":   func(msg *message.Message) error { msg.UUID = "other"; return nil },
		"ours": func(msg *message.Message) error { msg.Metadata.Set(poison.KeyRedriveCount, "0"); return nil },
		"no":   func(*message.Message) error { return errors.New("not this one") },
		"boom": func(*message.Message) error { panic("boom") },
	}
	all := open(t, store, c)
	const payload = "{ \"n\" : 12345678901234567890.10,\n\t\"to\":\"x\", \"big\": 9007199254740993 }"
	large := `{"n":1,"blob":"` + strings.Repeat("x", 3<<20) + `"}`
	fixture.Publish(t, store, "orders.dlq", fixture.Letter("json", payload), fixture.Letter("large", large))
	fixture.Publish(t, store, "orders.dlq", fixture.Letter("binary", "\x00\xff"), fixture.Letter("text", "not JSON"), fixture.Letter("latin", "{\"a\":\"\xe9\"}"))
	r := request
	r.Edit = &campaigns.Edit{Merge: []byte(`{"to":"y"}`), Set: map[string]string{"schema": "2"}, Unset: []string{"tenant"}, Func: "sign"}
	out := working(t, all)
	done := reach(t, all, start(t, all, r).ID, campaigns.Finished)
	const want = 2
	testkit.Require(t, done.Redriven == want && done.Refused == 3, "%+v", done)
	for _, p := range out.All() {
		m := p.Msg.Metadata
		testkit.Check(t, m.Get("schema") == "2" && m.Get("signed") == "yes" && m.Get("tenant") == "", "%v", m)
		was := map[string]string{"json": payload, "large": large}[p.Msg.UUID]
		changed := `{"n":12345678901234567890.10,"to":"y","big":9007199254740993}`
		if p.Msg.UUID == "large" {
			changed = strings.TrimSuffix(was, "}") + `,"to":"y"}`
		}
		testkit.Check(t, string(p.Msg.Payload) == changed, "%.200q", p.Msg.Payload)
	}
	kept := fixture.List(t, store, letters.Filter{IDs: []string{"json"}, Statuses: letters.Statuses()})
	testkit.Check(t, len(kept) == 1 && string(kept[0].Original.Payload) == payload &&
		kept[0].Original.Metadata.Get("tenant") == "blue", "%+v", kept)
	fixture.WantCount(t, store, letters.Filter{IDs: []string{"binary", "text", "latin"}}, 3)
	events, err := store.Audit(t.Context(), letters.EventFilter{Kinds: []letters.EventKind{letters.EventEdited}})
	testkit.Check(t, err == nil && len(events) == want && strings.Contains(events[0].Detail, `"to":"y"`) &&
		events[0].By == "ann", "%+v %v", events, err)
	history, err := store.History(t.Context(), kept[0].Seq)
	edited := slices.IndexFunc(history, func(e letters.Event) bool { return e.Kind == letters.EventEdited })
	redriven := slices.IndexFunc(history, func(e letters.Event) bool { return e.Kind == letters.EventRedriven })
	testkit.Check(t, err == nil && edited >= 0 && redriven >= edited,
		"edited at %d, redriven at %d, %v", edited, redriven, err)
	behind, err := hidden.Of(all).LeftBehind(t.Context(), done.ID)
	left := 0
	for _, b := range behind {
		if left += b.Letters; b.Outcome != "refused" || !strings.HasPrefix(b.Why, "edit: ") {
			t.Errorf("%+v", b)
		}
	}
	testkit.Check(t, err == nil && left == 3, "%d are left behind, %+v, %v", left, behind, err)
	for _, f := range []string{"id", "ours", "no", "boom"} {
		r := campaigns.Request{Filter: letters.Filter{IDs: []string{"text"}}, Edit: &campaigns.Edit{Func: f}, Act: act}
		done := reach(t, all, start(t, all, r).ID, campaigns.Finished)
		testkit.Check(t, done.Refused == 1, "%s: %+v", f, done)
	}
	testkit.Equal(t, "a refused letter was published", len(out.All()), want)
}

// Feature V6: an edit that no message can be edited by is refused before anything begins.
func TestEdit_validate(t *testing.T) {
	bytes, large := "\xff", strings.Repeat("x", 300<<10)
	keys := func(n int) campaigns.Edit {
		text := `{"first":1`
		for i := range n - 1 {
			text += fmt.Sprintf(`,"k%d":1`, i)
		}
		return campaigns.Edit{Merge: []byte(text + "}")}
	}
	most := keys(1000)
	testkit.Check(t, most.Validate() == nil, "1000 keys are refused")
	for name, e := range map[string]campaigns.Edit{
		"payload": {Payload: &bytes}, "large payload": {Payload: &large},
		"nothing": {}, "merge": {Merge: []byte(`{`)}, "patch": {Patch: []byte(`{}`)}, "operation": {Patch: []byte(`[{"op":"x","path":""}]`)},
		"reserved": {Set: map[string]string{poison.KeyOriginalTopic: "admin"}}, "unset": {Unset: []string{poison.KeyRedriveCount}}, "empty": {Unset: []string{""}},
		"keys": keys(1001), "bytes": {Set: map[string]string{"a": "\xff"}}, "large": {Merge: []byte(`"` + strings.Repeat("x", 300<<10) + `"`)},
	} {
		testkit.Check(t, e.Validate() != nil, "%s is accepted", name)
	}
}

// Feature V6: a function that edits can end with its worker, and a worker that ends refuses no letter.
func TestEdit_ends(t *testing.T) {
	store := fixture.SQLite.NewStore(t)
	began, once := make(chan struct{}), sync.Once{}
	c := config
	c.Edits = map[string]func(*message.Message) error{"slow": func(msg *message.Message) error {
		once.Do(func() { close(began) })
		<-msg.Context().Done()
		return msg.Context().Err()
	}}
	all := open(t, store, c)
	fixture.Publish(t, store, "orders.dlq", fixture.Letter("1", `{"a":1}`))
	r := request
	r.Edit = &campaigns.Edit{Func: "slow"}
	id := start(t, all, r).ID
	worker := testkit.Must(campaigns.NewWorker(all, &fixture.Outbox{}, quick))
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	<-began
	end()
	<-ended
	now, err := all.Get(t.Context(), id)
	testkit.Check(t, err == nil && now.Refused == 0 && now.Redriven == 0, "%+v, %v", now, err)
	plan, cancel := context.WithCancel(t.Context())
	cancel()
	testkit.Is(t, testkit.Err(all.Plan(plan, r)), context.Canceled)
}

// Feature D14: a value that is masked before an edit is masked after it. What cannot be shown so is withheld.
func TestDiff_masked(t *testing.T) {
	r := testkit.Must(privacy.New(privacy.Rules{Metadata: []string{"customer"}, Payload: []string{"$.card.number", "$.rows[0].name", "$.closed"}}))
	c := config
	c.Edits = map[string]func(*message.Message) error{
		"leak": func(msg *message.Message) error { msg.Metadata.Set("note", msg.Metadata.Get("customer")); return nil },
		"count": func(msg *message.Message) error {
			msg.Payload = append(msg.Payload, byte('0'+len(msg.Payload)%10))
			return nil
		},
		"needs": func(msg *message.Message) error {
			if !strings.Contains(string(msg.Payload), "SECRET") {
				return errors.New("no")
			}
			msg.Metadata.Set("note", "SECRET")
			return nil
		},
		"plain": func(msg *message.Message) error { msg.Metadata.Set("note", "plain"); return nil },
	}
	store := fixture.SQLite.NewStore(t)
	fixture.Publish(t, store, "orders.dlq",
		fixture.Letter("small", `{"card":{"number":"SECRET1"},"rows":[{"name":"SECRET2"},{"name":"bob"}],"closed":{"in":"SECRET3"},"n":1}`, func(l *poison.Letter) {
			l.Original.Metadata.Set("customer", "SECRET4")
		}),
		fixture.Letter("large", `{"card":{"number":"SECRET5"},"pad":"`+strings.Repeat("x", 300<<10)+`"}`))
	all := open(t, store, c)
	for _, row := range []struct {
		seq      int64
		edit     campaigns.Edit
		shows    string // of what is shown
		withheld string
	}{
		{1, campaigns.Edit{Patch: []byte(`[{"op":"copy","from":"/card/number","path":"/ok"}]`)}, `"ok":"[redacted]"`, ""},
		{1, campaigns.Edit{Patch: []byte(`[{"op":"move","from":"/card","path":"/n"}]`)}, `"n":{"number":"[redacted]"}`, ""},
		{1, campaigns.Edit{Patch: []byte(`[{"op":"add","path":"/rows/0","value":{"name":"eve"}}]`), Set: map[string]string{"customer": "SECRET6", "tenant": "green"}}, `{"name":"bob"}`, ""},
		{1, campaigns.Edit{Patch: []byte(`[{"op":"test","path":"/card/number","value":"SECRET1"},{"op":"add","path":"/n","value":2}]`), Set: map[string]string{"tenant": "green"}}, `"green"`, "needs values"},
		{1, campaigns.Edit{Patch: []byte(`[{"op":"copy","from":"/closed/in","path":"/n"}]`)}, "", "needs values"},
		{1, campaigns.Edit{Merge: []byte(`{"card":{"number":"SECRET7"},"n":2}`)}, `"n":2`, ""},
		{1, campaigns.Edit{Func: "leak"}, `"note"`, "the function"},
		{1, campaigns.Edit{Func: "count"}, "", "the function"},
		{1, campaigns.Edit{Func: "needs"}, "", "needs values"},
		{1, campaigns.Edit{Func: "plain"}, `"plain"`, ""},
		{2, campaigns.Edit{Patch: []byte(`[{"op":"move","from":"/card/number","path":"/pad"}]`)}, "", "more than"},
		{2, campaigns.Edit{Merge: []byte(`{"n":2}`)}, `"number":"[redacted]"`, ""},
	} {
		_, plan, err := hidden.Of(all).Plan(t.Context(), campaigns.Request{Seqs: []int64{row.seq}, Edit: &row.edit})
		testkit.Require(t, err == nil && len(plan.Sample) == 1 && plan.Sample[0].Edited.Refused == "",
			"%s: %+v %v", inside.EditText(&row.edit), plan.Sample, err)
		whole := plan.Sample[0].Edited
		d := whole.Masked(r)
		metadata, _ := json.Marshal(d.Metadata)
		shown := string(d.Before) + string(d.After) + string(metadata)
		testkit.Check(t, !strings.Contains(shown, "SECRET") && strings.Contains(shown, row.shows) &&
			strings.Contains(d.Withheld, row.withheld) && (d.Withheld == "") == (row.withheld == ""),
			"%s: %.500s, withheld %q", inside.EditText(&row.edit), shown, d.Withheld)
		testkit.Check(t, (d.Withheld == "" || d.Before == nil) &&
			string(whole.Masked(privacy.None()).After) == string(whole.After),
			"%s: %.500q", inside.EditText(&row.edit), d.Before)
	}
}

// Feature V17: an edit carries bytes that are no text, in place of a text and as bounded.
func TestEditPayloadBytes(t *testing.T) {
	text := "text"
	for says, e := range map[string]campaigns.Edit{
		"both set":        {Payload: &text, PayloadBytes: []byte{0xff}},
		"at most 262144":  {PayloadBytes: make([]byte, 257<<10)},
		"changes nothing": {PayloadBytes: []byte{}},
		"use payload_b64": {Payload: func() *string { s := "\xff"; return &s }()},
	} {
		err := e.Validate()
		testkit.Check(t, err != nil && strings.Contains(err.Error(), says), "%s: %v", says, err)
	}
}

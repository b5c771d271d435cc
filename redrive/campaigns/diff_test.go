package campaigns_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
)

// Feature D14: a value that is masked before an edit is masked after it, wherever the edit puts it. What cannot be
// shown so is withheld.
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
		_, plan, err := all.Inside().Plan(t.Context(), campaigns.Request{Seqs: []int64{row.seq}, Edit: &row.edit})
		if err != nil || len(plan.Sample) != 1 || plan.Sample[0].Edited.Refused != "" {
			t.Fatalf("%s: %+v %v", inside.EditText(&row.edit), plan.Sample, err)
		}
		whole := plan.Sample[0].Edited
		d := whole.Masked(r)
		metadata, _ := json.Marshal(d.Metadata)
		shown := string(d.Before) + string(d.After) + string(metadata)
		if strings.Contains(shown, "SECRET") || !strings.Contains(shown, row.shows) || !strings.Contains(d.Withheld, row.withheld) || (d.Withheld == "") != (row.withheld == "") {
			t.Errorf("%s: %.500s, withheld %q", inside.EditText(&row.edit), shown, d.Withheld)
		}
		if d.Withheld != "" && d.Before != nil || string(whole.Masked(privacy.None()).After) != string(whole.After) {
			t.Errorf("%s: %.500q", inside.EditText(&row.edit), d.Before)
		}
	}
}

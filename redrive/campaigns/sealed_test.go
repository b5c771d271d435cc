package campaigns_test

import (
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature D14: a campaign edits and redrives sealed letters, and refuses those that do not open, naming the key.
func TestSealed(t *testing.T) {
	db := fixture.SQLite.Create(t)()
	s, _ := fixture.Sealer(t, "k1")
	lost, _ := fixture.Sealer(t, "k3")
	store := testkit.Must(letters.NewStore(t.Context(), db, letters.Config{Service: "shop", Seal: s}))
	gone, _, err := inside.Poison.Seal(t.Context(), lost, fixture.Letter("lost", `{"n":1}`))
	testkit.NoError(t, err)
	fixture.Publish(t, store, "orders.dlq", gone, fixture.Letter("1", `{"n":1}`), fixture.Letter("2", `{"n":1}`))
	log := &testkit.Log{}
	c := config
	c.Logger = log
	all := open(t, store, c)
	r := request
	r.Edit = &campaigns.Edit{Merge: []byte(`{"n":2}`)}
	_, plan, err := hidden.Of(all).Plan(t.Context(), r)
	testkit.Check(t, err == nil && len(plan.Sample) == 3 &&
		strings.Contains(plan.Sample[0].Edited.Refused, `sealed with key "k3"`) &&
		string(plan.Sample[1].Edited.Before) == `{"n":1}` && string(plan.Sample[1].Edited.After) == `{"n":2}`,
		"%+v, %v", plan.Sample, err)
	out := &fixture.Outbox{}
	run(t, all, out, quick)
	done := reach(t, all, start(t, all, r).ID, campaigns.Finished)
	testkit.Check(t, done.Redriven == 2 && done.Refused == 1, "%+v", done)
	wantIDs(t, out, 2)
	for _, p := range out.All() {
		testkit.Check(t, string(p.Msg.Payload) == `{"n":2}` && p.Msg.Metadata["tenant"] == "blue" &&
			p.Msg.Metadata[poison.KeySealed] == "", "redriven %q %v", p.Msg.Payload, p.Msg.Metadata)
	}
	left := fixture.List(t, store, letters.Filter{})
	testkit.Check(t, len(left) == 1 && left[0].Original.UUID == "lost" &&
		string(left[0].Original.Payload) == string(gone.Payload), "left %+v", left)
	named := false
	for _, line := range log.Errors() {
		named = named || line.Err != nil && strings.Contains(line.Err.Error(), `sealed with key "k3"`)
	}
	testkit.Check(t, named, "the log does not name the key: %v", log.Errors())
}

// Feature D14: while the keys are unavailable a campaign refuses no letter, and redrives them all then.
func TestSealUnavailable(t *testing.T) {
	s, keys := fixture.Sealer(t, "k1")
	store := testkit.Must(letters.NewStore(t.Context(), fixture.SQLite.Create(t)(), letters.Config{Service: "shop", Seal: s}))
	fixture.Publish(t, store, "orders.dlq", fixture.Several(20)...)
	keys.Unavailable.Store(true)
	all, out := open(t, store, config), &fixture.Outbox{}
	run(t, all, out, quick)
	id := start(t, all, request).ID
	paused := reach(t, all, id, campaigns.Paused)
	testkit.Check(t, strings.Contains(paused.Why, "the KMS does not answer") && paused.Refused+paused.Failed == 0 &&
		len(out.All()) == 0, "%s: %+v", paused.Why, paused)
	keys.Unavailable.Store(false)
	testkit.Must(all.Resume(t.Context(), id, act))
	done := reach(t, all, id, campaigns.Finished)
	testkit.Check(t, done.Redriven == 20 && done.Refused+done.Failed == 0, "%+v", done)
	wantIDs(t, out, 20)
}

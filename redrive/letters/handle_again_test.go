package letters_test

import (
	"testing"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Features D15, I4, V12: a redriven letter whose outputs could not be published has succeeded when they are published,
// and a key that was applied before, or with another payload, says nothing of it.
func TestStore_learnOfOutputs(t *testing.T) { onEach(t, testStore_learnOfOutputs) }

func testStore_learnOfOutputs(t *testing.T, on fixture.Database) {
	db := on.Create(t)()
	store, ctx := storeOn(t, db), t.Context()
	because := func(reason string) func(*poison.Letter) {
		return func(l *poison.Letter) { l.Failure.Reason = reason }
	}
	testkit.Check(t, store.Inside().CheckKeys(ctx) != nil, "there are keys before there is a receiver")
	keys := testkit.Must(idempotency.NewStore(ctx, db, "shop"))
	testkit.NoError(t, store.Inside().CheckKeys(ctx))
	entry := func(id string) idempotency.Entry {
		return idempotency.Entry{Key: idempotency.Key{Consumer: keys.Consumer("billing"), ID: id}}
	}
	apply := func(id string, outputs []byte) {
		t.Helper()
		claim, err := keys.Claim(ctx, entry(id))
		if err == nil {
			err = claim.Commit(outputs)
		}
		testkit.NoError(t, err)
	}
	learn := func(want inside.Outcome) {
		t.Helper()
		testkit.Returns(t, want)(store.Inside().Learn(ctx, "campaign-1"))
	}
	recorded := []byte{1, 0}
	apply("output", recorded)
	apply("reused", nil)
	if _, err := db.Exec(`UPDATE spillway_keys SET applied_at = applied_at - 1000`); err != nil { // before there were letters
		t.Fatal(err)
	}
	publish(t, store, "orders.dlq", letter("output", "{}", because(classify.ReasonOutput)), letter("reused", "{}", because(classify.ReasonKeyReused)),
		letter("producing", "{}"), letter("untouched", "{}", because(classify.ReasonOutput)))
	taken := take(t, store, letters.Filter{}, 4)
	act := letters.Act{By: "ann", Reason: "the handler is repaired", RedriveID: "campaign-1"}
	for i, want := range []bool{true, false, false} { // once; the key of the last but one is not there
		of := taken[[]int{0, 0, 2}[i]]
		testkit.Returns(t, want)(store.Inside().HandleAgain(ctx, of.Letter, act))
	}
	audit, err := store.Audit(ctx, letters.EventFilter{Kinds: []letters.EventKind{letters.EventKeyRemoved}})
	if err != nil || len(audit) != 1 || audit[0].Seq != taken[0].Seq || audit[0].By != "ann" || audit[0].RedriveID != "campaign-1" {
		t.Errorf("%+v, %v", audit, err)
	}
	if marked, err := fixture.MarkEach(ctx, store, letters.StatusRedriven, act, taken...); err != nil || len(marked) != 4 {
		t.Fatal(marked, err)
	}
	learn(inside.Outcome{Redriven: 4})
	apply("output", recorded)    // by the handler that ran again; its outputs are still to come
	apply("producing", recorded) // for the first time
	learn(inside.Outcome{Redriven: 4})
	for i, id := range []string{"output", "producing"} {
		testkit.NoError(t, keys.MarkPublished(ctx, entry(id)))
		learn(inside.Outcome{Redriven: 3 - i, Succeeded: 1 + i})
	}
	wantNumbers(t, db, store)
}

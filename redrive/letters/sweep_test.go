package letters_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V9: letters are discarded and purged by status, cause and age, in small transactions. Those under a lease
// stay, and so do the events of those that go.
func TestStore_sweep(t *testing.T) { onEach(t, testStore_sweep) }

func testStore_sweep(t *testing.T, on fixture.Database) {
	db := on.Create(t)()
	store, ctx := storeOn(t, db), t.Context()
	publish(t, store, "orders.dlq", several(450)...) // more than one transaction
	publish(t, store, "orders.dlq", letter("b", "{}", fixture.By("b")), letter("old", "{}", func(l *poison.Letter) { l.Failure.LastFailedAt = fixture.FailedAt.Add(-time.Hour) }))
	taken := take(t, store, letters.Filter{IDs: []string{"id-7"}}, 1)
	act := letters.Act{By: "ann", Reason: "the customer is gone"}
	testkit.Returns(t, 450)(store.MarkAll(ctx, letters.Filter{Handlers: []string{"billing"}}, letters.StatusDiscarded, act))
	wantCount(t, store, letters.Filter{}, 2)
	testkit.Returns(t, 451)(store.MarkAll(ctx, letters.Filter{Statuses: letters.Statuses()}, letters.StatusDiscarded, act))
	testkit.Says(t, testkit.Err(store.Purge(ctx, letters.Filter{}, act)), "Filter.Statuses")
	old := letters.Filter{Statuses: []letters.Status{letters.StatusDiscarded}, Until: fixture.FailedAt}
	testkit.Returns(t, 1)(store.Purge(ctx, old, act))
	old.Until = time.Time{}
	testkit.Returns(t, 450)(store.Purge(ctx, old, act))
	found := list(t, store, letters.Filter{Statuses: letters.Statuses()})
	testkit.Check(t, len(found) == 1 && found[0].Original.UUID == "id-7", "%+v", found)
	wantNumbers(t, db, store)
	history, err := store.History(ctx, 3)
	if err != nil || !slices.Equal(kinds(history), []letters.EventKind{letters.EventStored, letters.EventDiscarded, letters.EventPurged}) ||
		history[2].Reason != act.Reason || history[0].At.After(history[1].At) || history[0].By != "" {
		t.Errorf("of a purged letter: %+v, %v", history, err)
	}

	leased, err := store.Heads(ctx, letters.Filter{Leased: true})
	if err != nil || len(leased) != 1 || leased[0].LeasedBy == "" || time.Until(leased[0].LeasedUntil) < 50*time.Minute || leased[0].MessageID != "id-7" {
		t.Fatalf("%+v, %v", leased, err)
	}
	if broken, err := store.Inside().BreakLeases(ctx, act, leased[0].Seq, 1, 99999); err != nil || !slices.Equal(broken, []int64{leased[0].Seq}) {
		t.Error(broken, err)
	}
	testkit.Is(t, fixture.Mark(ctx, store, taken[0], letters.StatusRedriven, act), letters.ErrLeaseLost)
	events, err := store.Audit(ctx, letters.EventFilter{Kinds: []letters.EventKind{letters.EventLeaseBroken}})
	if err != nil || len(events) != 1 || events[0].By != "ann" || !strings.Contains(events[0].Detail, leased[0].LeasedBy) {
		t.Errorf("%+v, %v", events, err)
	}
}

// Feature V9: a redrive ends with what became of its letters: handled as the receiver's keys say, dead again, or not
// heard of.
func TestStore_learn(t *testing.T) { onEach(t, testStore_learn) }

func testStore_learn(t *testing.T, on fixture.Database) {
	db := on.Create(t)()
	store, ctx := storeOn(t, db), t.Context()
	publish(t, store, "orders.dlq", several(6)...)
	taken := take(t, store, letters.Filter{}, 6)
	act := letters.Act{By: "ann", RedriveID: "campaign-1"}
	if marked, err := fixture.MarkEach(ctx, store, letters.StatusRedriven, act, taken...); err != nil || len(marked) != 6 {
		t.Fatal(marked, err)
	}
	again := func(id, redrive string) {
		publish(t, store, "orders.dlq", letter(id, "{}", redrivenTimes(1), func(l *poison.Letter) { l.Redrive.ID = redrive }))
	}
	again("id-0", "campaign-1")
	again("id-1", "another")
	publish(t, store, "orders.dlq", letter("id-2", "{}")) // the same letter: it waits again
	want := inside.Outcome{Redriven: 4, FailedAgain: 2}
	for range 2 { // there are no keys yet; the second time says the same
		testkit.Returns(t, want)(store.Inside().Learn(ctx, "campaign-1"))
	}
	keys := testkit.Must(idempotency.NewStore(ctx, db, "shop"))
	apply := func(handler, id string) {
		claim, err := keys.Claim(ctx, idempotency.Entry{Key: idempotency.Key{Consumer: keys.Consumer(handler), ID: id}})
		if err == nil {
			err = claim.Commit(nil)
		}
		testkit.NoError(t, err)
	}
	apply("billing", "id-0") // of a later redrive: this one failed
	apply("billing", "id-3")
	apply("mailer", "id-4")
	want = inside.Outcome{Redriven: 3, Succeeded: 1, FailedAgain: 2}
	testkit.Returns(t, want)(store.Inside().Learn(ctx, "campaign-1"))
	heard := letters.Filter{IDs: []string{"id-5", "unknown"}, Handlers: []string{"billing"}, Statuses: []letters.Status{letters.StatusRedriven}}
	testkit.Returns(t, 1)(store.MarkAll(ctx, heard, letters.StatusSucceeded, letters.Act{By: "mailer"}))
	want = inside.Outcome{Redriven: 2, Succeeded: 2, FailedAgain: 2}
	testkit.Returns(t, want)(store.Inside().Learn(ctx, "campaign-1"))
	history, err := store.History(ctx, taken[3].Seq)
	if err != nil || !slices.Equal(kinds(history), []letters.EventKind{letters.EventStored, letters.EventRedriven, letters.EventSucceeded}) || history[2].RedriveID != "campaign-1" {
		t.Errorf("%+v, %v", history, err)
	}
	testkit.Check(t, testkit.Err(store.Inside().Learn(ctx, "")) != nil, "no redrive is an error")
	wantNumbers(t, db, store)
}

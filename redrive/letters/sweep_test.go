package letters_test

import (
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V9: letters are discarded and purged by status, cause and age. Leased ones stay, and all events.
func TestStore_sweep(t *testing.T) { onEach(t, testStore_sweep) }

func testStore_sweep(t *testing.T, on fixture.Database) {
	db := on.Create(t)()
	store, ctx := storeOn(t, db), t.Context()
	publish(t, store, "orders.dlq", several(450)...) // more than one transaction
	publish(t, store, "orders.dlq", letter("b", "{}", fixture.By("b")), letter("old", "{}", func(l *poison.Letter) { l.Failure.LastFailedAt = fixture.FailedAt.Add(-time.Hour) }))
	take(t, store, letters.Filter{IDs: []string{"id-7"}}, 1)
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
	history := wantHistory(t, store, 3, "stored discarded purged")
	testkit.Check(t, history[2].Reason == act.Reason && !history[0].At.After(history[1].At) && history[0].By == "",
		"of a purged letter: %+v", history)

	leased, err := store.Heads(ctx, letters.Filter{Leased: true})
	testkit.Require(t, err == nil && len(leased) == 1 && leased[0].LeasedBy != "" &&
		time.Until(leased[0].LeasedUntil) >= 50*time.Minute && leased[0].MessageID == "id-7", "%+v, %v", leased, err)
}

// Feature V9: a redrive ends with its letters handled by the receiver's keys, dead again, or not heard of.
func TestStore_learn(t *testing.T) { onEach(t, testStore_learn) }

func testStore_learn(t *testing.T, on fixture.Database) {
	db := on.Create(t)()
	store, ctx := storeOn(t, db), t.Context()
	publish(t, store, "orders.dlq", several(6)...)
	taken := take(t, store, letters.Filter{}, 6)
	act := letters.Act{By: "ann", RedriveID: "campaign-1"}
	marked, err := fixture.MarkEach(ctx, store, letters.StatusRedriven, act, taken...)
	testkit.Require(t, err == nil && len(marked) == 6, "%v %v", marked, err)
	again := func(id, redrive string) {
		publish(t, store, "orders.dlq", letter(id, "{}", redrivenTimes(1), func(l *poison.Letter) { l.Redrive.ID = redrive }))
	}
	again("id-0", "campaign-1")
	again("id-1", "another")
	publish(t, store, "orders.dlq", letter("id-2", "{}")) // the same letter: it waits again
	learn := func(want inside.Outcome) {
		t.Helper()
		testkit.Returns(t, want)(hidden.Of(store).Learn(ctx, "campaign-1"))
	}
	for range 2 { // there are no keys yet; the second time says the same
		learn(inside.Outcome{Redriven: 4, FailedAgain: 2})
	}
	keys := testkit.Must(idempotency.NewStore(ctx, db, "shop"))
	apply := func(handler, id string) {
		key := idempotency.Key{Consumer: keys.Consumer(handler), ID: id}
		testkit.NoError(t, testkit.Must(keys.Claim(ctx, idempotency.Entry{Key: key})).Commit(nil))
	}
	apply("billing", "id-0") // of a later redrive: this one failed
	apply("billing", "id-3")
	apply("mailer", "id-4")
	learn(inside.Outcome{Redriven: 3, Succeeded: 1, FailedAgain: 2})
	heard := letters.Filter{IDs: []string{"id-5", "unknown"}, Handlers: []string{"billing"}, Statuses: []letters.Status{letters.StatusRedriven}}
	testkit.Returns(t, 1)(store.MarkAll(ctx, heard, letters.StatusSucceeded, letters.Act{By: "mailer"}))
	learn(inside.Outcome{Redriven: 2, Succeeded: 2, FailedAgain: 2})
	history := wantHistory(t, store, taken[3].Seq, "stored redriven succeeded")
	testkit.Equal(t, "by the redrive", history[2].RedriveID, "campaign-1")
	wantNumbers(t, db, store)
}

// Features V9, V12, decision 22: a letter without an id is known by its identity, and a forged one marks no other.
func TestStore_learnOfNoIDs(t *testing.T) { onEach(t, testStore_learnOfNoIDs) }

func testStore_learnOfNoIDs(t *testing.T, on fixture.Database) {
	db := on.Create(t)()
	store, ctx := storeOn(t, db), t.Context()
	publish(t, store, "orders.dlq", letter("", "a"), letter("", "b"), letter("", "c"), letter("", "other", fixture.By("mailer")), letter("id-1", "x"), letter("id-1", "y"))
	taken := take(t, store, letters.Filter{}, 6)
	identities := map[string]bool{}
	for _, l := range taken {
		identities[l.Identity] = true
		testkit.Check(t, len(l.Identity) == 32, "letter %d has the identity %q", l.Seq, l.Identity)
	}
	testkit.Check(t, len(identities) == len(taken), "%d letters have %d identities", len(taken), len(identities))
	act := letters.Act{By: "ann", RedriveID: "campaign-1"}
	other := letters.Act{By: "ann", RedriveID: "campaign-2"}
	for i, of := range taken {
		testkit.NoError(t, fixture.Mark(ctx, store, of, letters.StatusRedriven, map[bool]letters.Act{false: act, true: other}[i == 2]))
	}
	arrive := func(of fixture.Taken, key, value string) {
		t.Helper()
		msg := fixture.WithClass(of.Redriven("ann", "campaign-1", time.Now()))
		if msg.Metadata.Set(key, value); value == "" {
			delete(msg.Metadata, key)
		}
		publish(t, store, "orders.dlq", msg)
	}
	// Forged: of another handler, of another redrive, of no letter, of nothing that can be a name.
	own := taken[1].Identity
	arrive(taken[1], poison.KeyOriginalHandler, "stranger")
	arrive(taken[1], poison.KeyRedriveID, "campaign-9")
	for _, forged := range []string{taken[2].Identity, strings.Repeat("0", 32), strings.ToUpper(own), own + "0", "' OR 1=1 --\x00"} {
		arrive(taken[1], poison.KeyRedrivenLetter, forged)
	}
	testkit.Returns(t, inside.Outcome{Redriven: 5})(hidden.Of(store).Learn(ctx, "campaign-1"))
	for _, i := range []int{0, 0, 4} { // the first is delivered twice, the last is one of two letters with one id
		arrive(taken[i], "", "")
	}
	arrive(taken[3], poison.KeyOriginalHandler, "mailer")
	testkit.Returns(t, inside.Outcome{Redriven: 2, FailedAgain: 3})(hidden.Of(store).Learn(ctx, "campaign-1"))
	again, redriven := letters.StatusFailedAgain, letters.StatusRedriven
	for i, status := range []letters.Status{again, redriven, redriven, again, again, redriven} {
		l, err := store.Get(ctx, taken[i].Seq)
		testkit.Check(t, err == nil && l.Status == status && l.Identity == taken[i].Identity,
			"letter %d is %s, want %s (%v)", i, l.Status, status, err)
	}
	arrive(taken[5], poison.KeyRedrivenLetter, "") // by a program that does not know the key
	testkit.Returns(t, inside.Outcome{Redriven: 1, FailedAgain: 4})(hidden.Of(store).Learn(ctx, "campaign-1"))
	wantNumbers(t, db, store)
}

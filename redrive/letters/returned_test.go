package letters_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/settings"
)

// Features V9, V12, decision 22: a letter of a message without an id that failed again is known by its own identity,
// and a forged one marks no other letter.
func TestStore_learnOfNoIDs(t *testing.T) { onEach(t, testStore_learnOfNoIDs) }

func testStore_learnOfNoIDs(t *testing.T, on fixture.Database) {
	db := on.Create(t)()
	store, ctx := storeOn(t, db), t.Context()
	publish(t, store, "orders.dlq", letter("", "a"), letter("", "b"), letter("", "c"), letter("", "other", fixture.By("mailer")), letter("id-1", "x"), letter("id-1", "y"))
	taken := take(t, store, letters.Filter{}, 6)
	identities := map[string]bool{}
	for _, l := range taken {
		if identities[l.Identity] = true; len(l.Identity) != 32 {
			t.Errorf("letter %d has the identity %q", l.Seq, l.Identity)
		}
	}
	testkit.Check(t, len(identities) == len(taken), "%d letters have %d identities", len(taken), len(identities))
	act := letters.Act{By: "ann", RedriveID: "campaign-1"}
	for i, t2 := range taken {
		by := act
		if i == 2 { // c is of another redrive
			by.RedriveID = "campaign-2"
		}
		testkit.NoError(t, fixture.Mark(ctx, store, t2, letters.StatusRedriven, by))
	}
	arrive := func(of fixture.Taken, change ...func(message.Metadata)) {
		t.Helper()
		msg := fixture.WithClass(of.Redriven("ann", "campaign-1", time.Now()))
		for _, f := range change {
			f(msg.Metadata)
		}
		publish(t, store, "orders.dlq", msg)
	}
	names := func(value string) func(message.Metadata) {
		return func(m message.Metadata) { m.Set(poison.KeyRedrivenLetter, value) }
	}
	handler := func(name string) func(message.Metadata) {
		return func(m message.Metadata) { m.Set(poison.KeyOriginalHandler, name) }
	}
	// Forged: of another handler, of another redrive, of no letter, of nothing that can be a name.
	arrive(taken[1], handler("stranger"))
	arrive(taken[1], names(taken[2].Identity))
	arrive(taken[1], names(strings.Repeat("0", 32)))
	arrive(taken[1], names(strings.ToUpper(taken[1].Identity)))
	arrive(taken[1], names(taken[1].Identity+"0"))
	arrive(taken[1], names("' OR 1=1 --\x00"))
	arrive(taken[1], func(m message.Metadata) { m.Set(poison.KeyRedriveID, "campaign-9") })
	want := inside.Outcome{Redriven: 5}
	testkit.Returns(t, want)(store.Inside().Learn(ctx, "campaign-1"))
	arrive(taken[0])
	arrive(taken[0]) // delivered twice
	arrive(taken[3], handler("mailer"))
	arrive(taken[4]) // of two letters with one id
	want = inside.Outcome{Redriven: 2, FailedAgain: 3}
	testkit.Returns(t, want)(store.Inside().Learn(ctx, "campaign-1"))
	for i, status := range []letters.Status{letters.StatusFailedAgain, letters.StatusRedriven, letters.StatusRedriven, letters.StatusFailedAgain, letters.StatusFailedAgain, letters.StatusRedriven} {
		if l, err := store.Get(ctx, taken[i].Seq); err != nil || l.Status != status || l.Identity != taken[i].Identity {
			t.Errorf("letter %d is %s, want %s (%v)", i, l.Status, status, err)
		}
	}
	arrive(taken[5], func(m message.Metadata) { delete(m, poison.KeyRedrivenLetter) }) // of a program that does not know the key
	want = inside.Outcome{Redriven: 1, FailedAgain: 4}
	testkit.Returns(t, want)(store.Inside().Learn(ctx, "campaign-1"))
	wantNumbers(t, db, store)
}

// Decision 22: what a letter is changes, and its identity does not: it arrives again and moves behind the others, and
// is sealed.
func TestStore_identityStays(t *testing.T) { onEach(t, testStore_identityStays) }

func testStore_identityStays(t *testing.T, on fixture.Database) {
	open := on.Create(t)
	store, ctx := storeOn(t, open()), t.Context()
	publish(t, store, "orders.dlq", letter("id-1", "{}"), letter("", "{}"))
	before := fixture.List(t, store, letters.Filter{})
	taken, err := fixture.Take(ctx, store, letters.Filter{}, time.Hour, 1)
	if err == nil {
		err = fixture.Postpone(ctx, store, taken[0])
	}
	testkit.NoError(t, err)
	publish(t, store, "orders.dlq", letter("id-1", "{}"))
	sealer, _ := fixture.Sealer(t, "key-1")
	sealing, err := letters.NewStore(ctx, open(), settings.Shared{Service: "shop", Seal: sealer})
	if err == nil {
		_, err = sealing.Reseal(ctx, letters.Filter{}, letters.Act{By: "ann"})
	}
	testkit.NoError(t, err)
	after := fixture.List(t, sealing, letters.Filter{})
	slices.Reverse(after)
	testkit.Check(t, before[0].Seq != after[0].Seq, "the letter did not move")
	for i := range before {
		if before[i].Identity != after[i].Identity || !after[i].Sealed {
			t.Errorf("%q became %q, seq %d became %d, sealed %v", before[i].Identity, after[i].Identity, before[i].Seq, after[i].Seq, after[i].Sealed)
		}
	}
}

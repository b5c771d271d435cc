package letters_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/seal"
)

func sealedStore(t testing.TB, db *sql.DB, s *seal.Sealer) *letters.Store {
	t.Helper()
	return testkit.Must(letters.NewStore(t.Context(), db, letters.Config{Service: "shop", Seal: s}))
}

const card = "4111111111111111"

// secretLetter is a letter whose payload and metadata are secret.
func secretLetter(id string, change ...func(*poison.Letter)) *message.Message {
	return letter(id, `{"card":"`+card+`","of":"`+id+`"}`, append(change, func(l *poison.Letter) {
		l.Original.Metadata["customer"] = "Ada Lovelace " + id
	})...)
}

// wantSealed fails the test if a letter is not sealed with key, or does not open as the message.
func wantSealed(t testing.TB, store *letters.Store, l letters.Letter, key string, msg *message.Message) {
	t.Helper()
	want := poison.Read(msg).Original
	opened, err := store.Open(t.Context(), l)
	if err != nil {
		t.Error(err)
		return
	}
	if got := opened.Original; !l.Sealed || l.SealKey != key || got.UUID != want.UUID || !bytes.Equal(got.Payload, want.Payload) || !maps.Equal(got.Metadata, want.Metadata) {
		t.Errorf("letter %d, sealed with %q, opened as %s %q %v\nwant %s %q %v", l.Seq, l.SealKey, got.UUID, got.Payload, got.Metadata, want.UUID, want.Payload, want.Metadata)
	}
}

// wantHidden fails the test if any value of any table has what is sealed.
func wantHidden(t testing.TB, db *sql.DB) {
	t.Helper()
	said := append(fixture.Saying(t, db, card, fixture.Tables...), fixture.Saying(t, db, "Ada Lovelace", fixture.Tables...)...)
	testkit.Check(t, len(said) <= 0 && len(fixture.Saying(t, db, "no_such_customer", fixture.Tables...)) != 0,
		"what is sealed stands in %q, or nothing was looked at", said)
}

// Feature D14, V9: what arrives is sealed, in no column in the clear, and found, counted and recognised as before.
func TestStore_sealed(t *testing.T) { onEach(t, testStore_sealed) }

func testStore_sealed(t *testing.T, on fixture.Database) {
	db := on.Create(t)()
	s, _ := fixture.Sealer(t, "k1")
	store := sealedStore(t, db, s)
	one, two := secretLetter("1"), secretLetter("2", from("refunds"), redrivenTimes(2))
	queued, _, err := inside.Poison.Seal(t.Context(), s, secretLetter("3")) // by a queue
	testkit.NoError(t, err)
	publish(t, store, "orders.dlq", one, two, queued)
	publish(t, store, "orders.dlq", secretLetter("1")) // again: with another nonce
	publish(t, store, "orders.dlq", queued)
	wantHidden(t, db)

	all := list(t, store, letters.Filter{})
	testkit.Require(t, len(all) == 3 && all[0].Seen == 2 && all[1].Seen == 1 && all[2].Seen == 2,
		"%d letters, seen %d, %d and %d times", len(all), all[0].Seen, all[1].Seen, all[2].Seen)
	for i, msg := range []*message.Message{one, two, secretLetter("3")} {
		wantSealed(t, store, all[i], "k1", msg)
		testkit.Equal(t, "a sealed letter has another cause", all[i].Cause, letters.CauseOf(all[i].Letter))
	}
	groups, err := store.Groups(t.Context(), letters.Filter{})
	testkit.Check(t, err == nil && len(groups) == 2 && groups[0].Count == 2, "groups %+v, %v", groups, err)
	wantCount(t, store, letters.Filter{Metadata: map[string]string{"tenant": "blue"}}, 3)
	wantCount(t, store, letters.Filter{Metadata: map[string]string{"customer": "Ada Lovelace 1"}}, 0)
	wantCount(t, store, letters.Filter{Payload: card}, 0)
	wantCount(t, store, letters.Filter{SealKeys: []string{"k1"}}, 3)
	wantCount(t, store, letters.Filter{SealKeys: []string{""}}, 0)
	heads, err := store.Heads(t.Context(), letters.Filter{})
	testkit.Check(t, err == nil && len(heads) == 3 && heads[0].SealKey == "k1", "heads %+v, %v", heads, err)
	keys, err := hidden.Of(store).SealKeys(t.Context())
	testkit.Check(t, err == nil && fmt.Sprint(keys) == "[{k1 3}]", "keys %v, %v", keys, err)
	without := storeOn(t, db)
	l, err := without.Open(t.Context(), list(t, without, letters.Filter{})[0])
	testkit.Check(t, errors.Is(err, seal.ErrNoKeys) && l.Sealed && strings.Contains(err.Error(), `"k1"`),
		"without keys: %v", err)
}

// Feature D14: while the keys are unavailable the Store takes nothing in the clear, and what is sealed already it
// takes.
func TestStore_sealUnavailable(t *testing.T) {
	s, keys := fixture.Sealer(t, "k1")
	store := sealedStore(t, sqliteFile.Create(t)(), s)
	sealed, _, err := inside.Poison.Seal(t.Context(), s, secretLetter("1"))
	testkit.NoError(t, err)
	keys.Unavailable.Store(true)
	err = store.Publish("orders.dlq", secretLetter("2"))
	testkit.Check(t, errors.Is(err, seal.ErrUnavailable) && strings.Contains(err.Error(), "the KMS does not answer"),
		"published without keys: %v", err)
	publish(t, store, "orders.dlq", sealed)
	wantCount(t, store, letters.Filter{}, 1)
}

// Feature D14: payloads that were swapped between rows do not open, also where the ids are the same.
func TestStore_swappedRows(t *testing.T) {
	db := sqliteFile.Create(t)()
	s, _ := fixture.Sealer(t, "k1")
	store := sealedStore(t, db, s)
	reused := secretLetter("1") // a producer used an id twice
	reused.Payload = []byte("another message")
	publish(t, store, "orders.dlq", secretLetter("1"), reused, secretLetter("2"))
	all := list(t, store, letters.Filter{})
	put := func(from, into int) {
		testkit.Must(db.Exec(`UPDATE spillway_letter_bodies SET payload = ? WHERE body = ?`,
			[]byte(all[from].Original.Payload), all[into].Seq))
	}
	for _, other := range []int{1, 2} {
		put(0, other)
		put(other, 0)
		for i, l := range list(t, store, letters.Filter{}) {
			_, err := store.Open(t.Context(), l)
			moved := i == 0 || i == other
			testkit.Check(t, moved == errors.Is(err, seal.ErrOtherLetter) && (moved || err == nil), "letter %d: %v", i, err)
		}
		put(0, 0)
		put(other, other)
	}
}

// Feature D14: Reseal seals what is clear or of an old key, but for leased letters. What does not open stays.
func TestStore_reseal(t *testing.T) { onEach(t, testStore_reseal) }

func testStore_reseal(t *testing.T, on fixture.Database) {
	db := on.Create(t)()
	plain := storeOn(t, db)
	k1, _ := fixture.Sealer(t, "k1")
	k3, _ := fixture.Sealer(t, "k3")
	both, keys := fixture.Sealer(t, "k2", "k1")
	publish(t, plain, "orders.dlq", secretLetter("clear"), secretLetter("discarded"), secretLetter("leased"))
	publish(t, sealedStore(t, db, k1), "orders.dlq", secretLetter("old"), secretLetter("leased too"))
	publish(t, sealedStore(t, db, k3), "orders.dlq", secretLetter("lost"))
	discard := letters.Filter{IDs: []string{"discarded"}}
	testkit.Must(plain.MarkAll(t.Context(), discard, letters.StatusDiscarded, letters.Act{By: "ada"}))
	leased := take(t, plain, letters.Filter{IDs: []string{"leased", "leased too"}}, 2)
	store := sealedStore(t, db, both)
	before := list(t, store, letters.Filter{})
	keys.Unavailable.Store(true)
	testkit.Is(t, testkit.Err(store.Reseal(t.Context(), letters.Filter{}, letters.Act{})), seal.ErrUnavailable)
	keys.Unavailable.Store(false)

	act, last := letters.Act{By: "ada", Reason: "rotation"}, inside.Resealed{}
	report, err := hidden.Of(store).Reseal(t.Context(), letters.Filter{}, act, func(r inside.Resealed) { last = r })
	testkit.Require(t, err == nil && report.Key == "k2" && report.Resealed == 3 && report.Closed == 1 &&
		len(report.Why) == 1 && strings.Contains(report.Why[0], `sealed with key "k3"`) &&
		last.Resealed == report.Resealed, "%+v, %v; the last progress was %+v", report, err, last)
	counts, err := hidden.Of(store).SealKeys(t.Context())
	testkit.Check(t, err == nil && fmt.Sprint(counts) == "[{ 1} {k1 1} {k2 3} {k3 1}]", "keys %v, %v", counts, err)
	testkit.NoError(t, fixture.Release(t.Context(), store, leased...))
	for _, want := range []int{2, 0} {
		n, err := store.Reseal(t.Context(), letters.Filter{}, act)
		testkit.Require(t, n == want && err != nil && strings.Contains(err.Error(), `1 letters do not open`) &&
			strings.Contains(err.Error(), `sealed with key "k3"`), "%d, %v", n, err)
	}
	wantHidden(t, db)

	after := list(t, store, letters.Filter{})
	testkit.Require(t, len(after) == len(before), "%d letters, %d before", len(after), len(before))
	for i, l := range after {
		if l.Original.UUID == "lost" {
			continue
		}
		was, err := poison.Letter{}, error(nil)
		if was = before[i].Letter; was.Sealed {
			was, err = was.Open(t.Context(), k1)
		}
		testkit.NoError(t, err)
		wantSealed(t, store, l, "k2", was.Original)
		testkit.Check(t, l.Identity == before[i].Identity && l.Size >= len(l.Original.Payload) && fmt.Sprint(l.Failure) == fmt.Sprint(before[i].Failure),
			"letter %d has the size %d and %+v", l.Seq, l.Size, l.Failure)
	}
	publish(t, store, "orders.dlq", secretLetter("clear"))
	publish(t, sealedStore(t, db, k1), "orders.dlq", secretLetter("old")) // by a process that is not yet rotated
	for _, l := range list(t, store, letters.Filter{IDs: []string{"clear", "old"}}) {
		testkit.Check(t, l.Seen == 2, "%s was seen %d times", l.Original.UUID, l.Seen)
		wantSealed(t, store, l, "k2", secretLetter(l.Original.UUID))
	}
	events, err := store.Audit(t.Context(), letters.EventFilter{Kinds: []letters.EventKind{letters.EventResealed}})
	testkit.Check(t, err == nil && len(events) == 5 && events[0].By == "ada" && events[0].Reason == "rotation" &&
		events[0].Detail == `from key "" to "k2"`, "%d events %+v, %v", len(events), events, err)
	history, err := store.History(t.Context(), list(t, store, letters.Filter{IDs: []string{"discarded"}, Statuses: letters.Statuses()})[0].Seq)
	testkit.Check(t, err == nil && len(history) == 3 && history[0].Kind == letters.EventStored &&
		history[1].Kind == letters.EventDiscarded && history[2].Kind == letters.EventResealed,
		"history %+v, %v", history, err)
}

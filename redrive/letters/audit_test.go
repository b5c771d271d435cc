package letters_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V9: every change is an event in its transaction, by whom and why, over all redrives of a message.
func TestStore_audit(t *testing.T) { onEach(t, testStore_audit) }

func testStore_audit(t *testing.T, on fixture.Database) {
	db := on.Create(t)()
	store, ctx := storeOn(t, db), t.Context()
	publish(t, store, "orders.dlq", letter("1", "a"), letter("2", "b"), letter("", "no id"))
	taken := take(t, store, letters.Filter{}, 3)
	hostile := "ann\x00\xff"
	act := letters.Act{By: hostile, Reason: strings.Repeat("r", 1024), RedriveID: "campaign-1", Detail: "price: 1 → 2"}
	recorded, err := hidden.Of(store).Record(ctx, nil, letters.EventEdited, act, 1, 2, 99)
	testkit.Require(t, err == nil && slices.Equal(recorded, []int64{1, 2}), "%v %v", recorded, err)
	lost := taken[1]
	lost.Claim.Token = "other"
	marked, err := fixture.MarkEach(ctx, store, letters.StatusRedriven, act, taken[0], lost)
	testkit.Require(t, err == nil && len(marked) == 1 && marked[0] == 1, "%+v, %v", marked, err)
	testkit.NoError(t, fixture.Mark(ctx, store, taken[2], letters.StatusDiscarded, letters.Act{By: "bob", Reason: "a test"}))
	again := letter("1", "a", redrivenTimes(1), func(l *poison.Letter) { l.Redrive.ID = "campaign-1" })
	publish(t, store, "orders.dlq", again, again, letter("1", "a"))

	now := list(t, store, letters.Filter{IDs: []string{"1"}})[0].Seq // what letter 1 is now
	wantHistory(t, store, now, "stored edited redriven stored arrived_again arrived_again")
	e := wantHistory(t, store, 1, "stored edited redriven stored arrived_again arrived_again")[2]
	testkit.Check(t, e.Seq == 1 && e.MessageID == "1" && e.By != "" && strings.HasPrefix(e.By, "ann") &&
		e.Reason == act.Reason && e.RedriveID == "campaign-1" && e.Detail == act.Detail &&
		time.Since(e.At).Abs() <= time.Minute, "%+v", e)
	wantHistory(t, store, 3, "stored discarded") // without an id

	for name, c := range map[string]struct {
		f    letters.EventFilter
		want string
	}{
		"all":         {letters.EventFilter{}, "edited edited redriven discarded arrived_again arrived_again"},
		"MessageIDs":  {letters.EventFilter{MessageIDs: []string{"2"}}, "edited"},
		"Kinds":       {letters.EventFilter{Kinds: []letters.EventKind{letters.EventRedriven}}, "redriven"},
		"By":          {letters.EventFilter{By: []string{hostile}}, "edited edited redriven"},
		"RedriveIDs":  {letters.EventFilter{RedriveIDs: []string{"campaign-1"}}, "edited edited redriven arrived_again"},
		"Until":       {letters.EventFilter{Until: time.Now().Add(-time.Hour)}, ""},
		"Since":       {letters.EventFilter{Since: time.Now().Add(time.Hour)}, ""},
		"NewestFirst": {letters.EventFilter{NewestFirst: true, Limit: 3}, "arrived_again arrived_again discarded"},
		"After":       {letters.EventFilter{After: 3}, "discarded arrived_again arrived_again"},
		"before":      {letters.EventFilter{After: 3, NewestFirst: true}, "edited edited"},
		"injection":   {letters.EventFilter{By: []string{"' OR 1=1 --"}}, ""},
	} {
		events, err := store.Audit(ctx, c.f)
		testkit.Check(t, err == nil && kinds(events) == c.want, "%s: %q, %v", name, kinds(events), err)
	}
	other := testkit.Must(letters.NewStore(ctx, db, letters.Config{Service: "other"}))
	testkit.Equal(t, "events of another service", len(testkit.Must(other.Audit(ctx, letters.EventFilter{}))), 0)
	for field, filter := range map[string]letters.EventFilter{
		"EventFilter.Limit": {Limit: letters.MaxLimit + 1},
		"EventFilter.Kinds": {Kinds: []letters.EventKind{"gone"}},
		"EventFilter.By":    {By: make([]string, 501)},
	} {
		testkit.Says(t, testkit.Err(store.Audit(ctx, filter)), field)
	}
	for field, bad := range map[string]letters.Act{
		"Act.Reason": {Reason: hostile}, "Act.RedriveID": {RedriveID: strings.Repeat("x", 256)},
	} {
		testkit.Says(t, fixture.Mark(ctx, store, taken[1], letters.StatusRefused, bad), field)
	}
}

// kinds are the kinds of events, in a line.
func kinds(events []letters.Event) string {
	all := make([]string, len(events))
	for i, e := range events {
		all[i] = string(e.Kind)
	}
	return strings.Join(all, " ")
}

// wantHistory fails the test unless a letter has a history of these kinds, which it returns.
func wantHistory(t testing.TB, store *letters.Store, seq int64, want string) []letters.Event {
	t.Helper()
	history := testkit.Must(store.History(t.Context(), seq))
	testkit.Require(t, kinds(history) == want, "the history of letter %d is %s, want %s", seq, kinds(history), want)
	return history
}

// Feature V9: a change whose event cannot be written is not made, and an event whose change is undone is not there.
func TestStore_auditWithTheChange(t *testing.T) { onEach(t, testStore_auditWithTheChange) }

func testStore_auditWithTheChange(t *testing.T, on fixture.Database) {
	db := on.Create(t)()
	store, ctx := storeOn(t, db), t.Context()
	publish(t, store, "orders.dlq", letter("1", "a"), letter("2", "b"))
	tx := testkit.Must(db.BeginTx(ctx, nil))
	recorded, err := hidden.Of(store).Record(ctx, tx, letters.EventSelected, letters.Act{By: "ann"}, 1, 2)
	testkit.Check(t, err == nil && len(recorded) == 2, "%v %v", recorded, err)
	testkit.NoError(t, errors.Join(err, tx.Rollback()))
	testkit.Equal(t, "events", len(testkit.Must(store.Audit(ctx, letters.EventFilter{}))), 0)
	taken := take(t, store, letters.Filter{}, 1)
	mustExec(t, db, `ALTER TABLE spillway_letter_events RENAME TO gone`)
	testkit.Check(t, fixture.Mark(ctx, store, taken[0], letters.StatusDiscarded, letters.Act{By: "ann"}) != nil,
		"marked without an event")
	mustExec(t, db, `ALTER TABLE gone RENAME TO spillway_letter_events`)
	wantCount(t, store, letters.Filter{}, 2)
	testkit.NoError(t, fixture.Mark(ctx, store, taken[0], letters.StatusDiscarded, letters.Act{By: "ann"}))
}

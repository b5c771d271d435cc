package letters_test

import (
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/settings"
)

// Feature V9: every change of a letter is an event, with who made it and why, in the transaction of the change. The
// history of a message goes on over its redrives.
func TestStore_audit(t *testing.T) { onEach(t, testStore_audit) }

func testStore_audit(t *testing.T, on fixture.Database) {
	db := on.Create(t)()
	store, ctx := storeOn(t, db), t.Context()
	publish(t, store, "orders.dlq", letter("1", "a"), letter("2", "b"), letter("", "no id"))
	taken := take(t, store, letters.Filter{}, 3)
	hostile := "ann\x00\xff"
	act := letters.Act{By: hostile, Reason: strings.Repeat("r", 1024), RedriveID: "campaign-1", Detail: "price: 1 → 2"}
	if recorded, err := store.Inside().Record(ctx, nil, string(letters.EventEdited), act, 1, 2, 99); err != nil || !slices.Equal(recorded, []int64{1, 2}) {
		t.Fatal(recorded, err)
	}
	lost := taken[1]
	lost.Claim.Token = "other"
	marked, err := fixture.MarkEach(ctx, store, letters.StatusRedriven, act, taken[0], lost)
	testkit.Require(t, err == nil && len(marked) == 1 && marked[0] == 1, "%+v, %v", marked, err)
	testkit.NoError(t, fixture.Mark(ctx, store, taken[2], letters.StatusDiscarded, letters.Act{By: "bob", Reason: "a test"}))
	again := letter("1", "a", redrivenTimes(1), func(l *poison.Letter) { l.Redrive.ID = "campaign-1" })
	publish(t, store, "orders.dlq", again, again, letter("1", "a"))

	for _, seq := range []int64{1, list(t, store, letters.Filter{IDs: []string{"1"}})[0].Seq} { // what it was, and what it is
		history, err := store.History(ctx, seq)
		if got := kinds(history); err != nil || !slices.Equal(got, []letters.EventKind{letters.EventStored, letters.EventEdited, letters.EventRedriven,
			letters.EventStored, letters.EventArrivedAgain, letters.EventArrivedAgain}) {
			t.Errorf("of letter %d: %q, %v", seq, got, err)
		}
	}
	history := testkit.Must(store.History(ctx, 1))
	if e := history[2]; e.Seq != 1 || e.MessageID != "1" || e.By == "" || !strings.HasPrefix(e.By, "ann") || e.Reason != act.Reason ||
		e.RedriveID != "campaign-1" || e.Detail != act.Detail || time.Since(e.At).Abs() > time.Minute {
		t.Errorf("%+v", e)
	}
	if history, err := store.History(ctx, 3); err != nil || !slices.Equal(kinds(history), []letters.EventKind{letters.EventStored, letters.EventDiscarded}) {
		t.Errorf("without an id: %+v, %v", history, err)
	}

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
		var got []string
		for _, kind := range kinds(events) {
			got = append(got, string(kind))
		}
		testkit.Check(t, err == nil && strings.Join(got, " ") == c.want, "%s: %q, %v", name, got, err)
	}
	other := testkit.Must(letters.NewStore(ctx, db, settings.Shared{Service: "other"}))
	if events, err := other.Audit(ctx, letters.EventFilter{}); err != nil || len(events) != 0 {
		t.Errorf("another service: %+v, %v", events, err)
	}
	for field, call := range map[string]func() error{
		"EventFilter.Limit": func() error { _, err := store.Audit(ctx, letters.EventFilter{Limit: letters.MaxLimit + 1}); return err },
		"EventFilter.Kinds": func() error {
			_, err := store.Audit(ctx, letters.EventFilter{Kinds: []letters.EventKind{"gone"}})
			return err
		},
		"EventFilter.By": func() error { _, err := store.Audit(ctx, letters.EventFilter{By: make([]string, 501)}); return err },
		"Act.Reason": func() error {
			return fixture.Mark(ctx, store, taken[1], letters.StatusRefused, letters.Act{Reason: hostile})
		},
		"Act.RedriveID": func() error {
			return fixture.Mark(ctx, store, taken[1], letters.StatusRefused, letters.Act{RedriveID: strings.Repeat("x", 256)})
		},
		"use EventSelected": func() error {
			_, err := store.Inside().Record(ctx, nil, string(letters.EventPurged), letters.Act{}, 1)
			return err
		},
		"use several calls": func() error {
			_, err := store.Inside().Record(ctx, nil, string(letters.EventEdited), letters.Act{}, make([]int64, 1001)...)
			return err
		},
	} {
		testkit.Says(t, call(), field)
	}
}

func kinds(events []letters.Event) (kinds []letters.EventKind) {
	for _, e := range events {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// Feature V9: a change whose event cannot be written is not made, and an event whose change is undone is not there.
func TestStore_auditWithTheChange(t *testing.T) { onEach(t, testStore_auditWithTheChange) }

func testStore_auditWithTheChange(t *testing.T, on fixture.Database) {
	db := on.Create(t)()
	store, ctx := storeOn(t, db), t.Context()
	publish(t, store, "orders.dlq", letter("1", "a"), letter("2", "b"))
	tx := testkit.Must(db.BeginTx(ctx, nil))
	recorded, err := store.Inside().Record(ctx, tx, string(letters.EventSelected), letters.Act{By: "ann"}, 1, 2)
	testkit.Check(t, err == nil && len(recorded) == 2, "%v %v", recorded, err)
	testkit.NoError(t, errors.Join(err, tx.Rollback()))
	if events, err := store.Audit(ctx, letters.EventFilter{}); err != nil || len(events) != 0 {
		t.Errorf("%+v, %v", events, err)
	}
	taken := take(t, store, letters.Filter{}, 1)
	mustExec(t, db, `ALTER TABLE spillway_letter_events RENAME TO gone`)
	testkit.Check(t, fixture.Mark(ctx, store, taken[0], letters.StatusDiscarded, letters.Act{By: "ann"}) != nil,
		"marked without an event")
	mustExec(t, db, `ALTER TABLE gone RENAME TO spillway_letter_events`)
	wantCount(t, store, letters.Filter{}, 2)
	testkit.NoError(t, fixture.Mark(ctx, store, taken[0], letters.StatusDiscarded, letters.Act{By: "ann"}))
}

func mustExec(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		_, err := db.Exec(statement)
		testkit.Require(t, err == nil, "%s: %v", statement, err)
	}
}

package letters_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V16: what persons say of a cause is on record; a snooze ends with its time, or as the cause grows, once; a
// note outlives the letters by 90 days, and a cause that comes again is known.
func TestNotes(t *testing.T) { onEach(t, testNotes) }

func testNotes(t *testing.T, on fixture.Database) {
	db := on.Create(t)()
	store, ctx := storeOn(t, db), t.Context()
	sent := 0
	arrive := func(n int) {
		for range n {
			sent++
			publish(t, store, "orders.dlq", letter(fmt.Sprint("id-", sent), "{}"))
		}
	}
	arrive(3)
	cause := testkit.Must(store.Groups(ctx, letters.Filter{}))[0].Cause
	read := func() inside.CauseNote { return testkit.Must(hidden.Of(store).Notes(ctx))[cause] }
	now := func() inside.CauseNote { // with a worker
		tended := testkit.Must(hidden.Of(store).TendNotes(ctx))[cause]
		testkit.Check(t, tended == read(), "a worker sees %+v, others %+v", tended, read())
		return tended
	}
	recorded := func() (all []string) {
		events := testkit.Must(store.Audit(ctx, letters.EventFilter{Kinds: []letters.EventKind{letters.EventCause}}))
		for _, e := range events {
			all = append(all, e.By+": "+strings.TrimPrefix(e.Detail, "cause "+cause+": ")+": "+e.Reason)
		}
		return all
	}
	change := func(c inside.CauseChange) inside.CauseNote {
		return testkit.Must(hidden.Of(store).ChangeNote(ctx, cause, c, letters.Act{By: "ann", Reason: "INC-7"}))
	}
	text := func(s string) *string { return &s }
	until := time.Now().Add(2 * time.Hour).Truncate(time.Second)

	_, err := hidden.Of(store).ChangeNote(ctx, strings.Repeat("0", 32), inside.CauseChange{Note: text("x")}, letters.Act{By: "ann", Reason: "INC-7"})
	testkit.Check(t, errors.Is(err, inside.ErrNoCause) && len(recorded()) == 0, "%v", err)
	said := change(inside.CauseChange{Owner: text("ann"), Note: text("the ledger is slow"), Link: text("https://tickets/7")})
	testkit.Check(t, said.Owner == "ann" && said.Note == "the ledger is slow" && said.Link == "https://tickets/7" && said.NotedBy == "ann" &&
		time.Since(said.NotedAt).Abs() < time.Minute && !said.Snoozed && !said.Known, "%+v", said)
	snoozed := change(inside.CauseChange{SnoozedUntil: &until})
	testkit.Check(t, snoozed.Snoozed && snoozed.SnoozedUntil.Equal(until) && snoozed.SnoozedBy == "ann" && snoozed.Note == said.Note, "%+v", snoozed)
	_, err = hidden.Of(store).ChangeNote(ctx, cause, inside.CauseChange{Note: text("mine"), Seen: &said}, letters.Act{By: "bob", Reason: "INC-7"})
	testkit.Check(t, errors.Is(err, inside.ErrNoteChanged) && now().Note == said.Note, "%v", err)

	arrive(9) // four times as many
	testkit.Check(t, now().Snoozed, "it woke early: %+v", now())
	arrive(1)
	testkit.Check(t, !read().Snoozed && !read().WokenAt.IsZero() && len(recorded()) == 2, "reading wrote, or it sleeps: %+v, %q", read(), recorded())
	testkit.NoError(t, store.TendTimes(ctx, 4))
	woken := now()
	testkit.Check(t, !woken.Snoozed && time.Since(woken.WokenAt).Abs() < time.Minute && woken.Note == said.Note, "%+v", woken)
	testkit.Equal(t, "the record", strings.Join(recorded(), "\n"), strings.Join([]string{"ann: owner ann; note the ledger is slow; link https://tickets/7: INC-7",
		"ann: snoozed until " + until.UTC().Format(time.RFC3339) + ": INC-7",
		"spillway: woken: it grew: 13 letters in the last hour, 3 in the hour before the snooze"}, "\n"))

	testkit.Check(t, change(inside.CauseChange{SnoozedUntil: &until}).Snoozed, "it is not snoozed again: %+v", now())
	testkit.Must(db.Exec(`UPDATE spillway_cause_notes SET snoozed_until = 1`))
	testkit.Check(t, !now().Snoozed && now().WokenAt.IsZero(), "its time is over: %+v", now())
	change(inside.CauseChange{SnoozedUntil: &until})
	testkit.Check(t, !change(inside.CauseChange{SnoozedUntil: new(time.Time)}).Snoozed, "the snooze was ended: %+v", now())

	testkit.Must(store.MarkAll(ctx, letters.Filter{}, letters.StatusDiscarded, letters.Act{By: "ann"}))
	testkit.Check(t, !now().Known && now().Note == said.Note, "no letter waits: %+v", now())
	testkit.Must(store.Purge(ctx, fixture.Status(letters.StatusDiscarded), letters.Act{By: "ann"}))
	testkit.Check(t, now().Note == said.Note, "all letters are gone: %+v", now())
	arrive(1)
	testkit.Check(t, now().Known && now().Words() == "known: owner ann; the ledger is slow; https://tickets/7", "it came again: %+v", now())

	n, err := hidden.Of(store).ForgetNotes(ctx, true, []string{"ledger"})
	testkit.Check(t, err == nil && n == 1 && now().Note == said.Note, "%d, %v", n, err)
	n, err = hidden.Of(store).ForgetNotes(ctx, false, []string{"ledger"})
	testkit.Check(t, err == nil && n == 1 && now().Note == "the erased is slow" && strings.Contains(recorded()[0], "the erased is slow"),
		"%d, %v, %q", n, err, recorded())

	other := testkit.Must(letters.NewStore(ctx, db, letters.Config{Service: "other"}))
	testkit.Equal(t, "notes of another service", len(testkit.Must(hidden.Of(other).Notes(ctx))), 0)
	const days = int64(24 * time.Hour / time.Microsecond)
	testkit.Must(store.MarkAll(ctx, letters.Filter{}, letters.StatusDiscarded, letters.Act{By: "ann"}))
	now()
	later := func(n int64) {
		testkit.Must(db.Exec(fmt.Sprintf(`UPDATE spillway_cause_notes SET noted_at = noted_at - %[1]d, snoozed_at = snoozed_at - %[1]d, gone_at = gone_at - %[1]d`, n)))
	}
	later(89 * days)
	testkit.Check(t, now().Note != "", "the note is gone after 89 days")
	arrive(1) // and goes: the 90 days begin again
	now()
	testkit.Must(store.MarkAll(ctx, letters.Filter{}, letters.StatusDiscarded, letters.Act{By: "ann"}))
	now()
	later(2 * days)
	testkit.Check(t, now().Note != "", "the note is gone 2 days after the letters")
	later(89 * days)
	testkit.Check(t, now() == inside.CauseNote{}, "the note is kept after 91 days: %+v", now())
	testkit.Check(t, strings.HasPrefix(recorded()[len(recorded())-1], "spillway: note deleted: "), "%q", recorded())
}

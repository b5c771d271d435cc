package letters_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// person is the value that must not be found after it was erased.
const person = "ann.smith@example.com"

// personal is a letter of a person, whose value is everywhere that a handler can put it.
func personal(id string, change ...func(*poison.Letter)) *message.Message {
	return letter(id, `{"email":"`+person+`"}`, append([]func(*poison.Letter){func(l *poison.Letter) {
		l.Original.Metadata.Set("customer", person)
		l.Failure.Description = "cannot write to " + person
		l.Failure.Stack = "goroutine 1\n" + person
		l.Failure.History = []classify.Attempt{{At: fixture.FailedAt, Class: classify.ClassPermanent, Error: "bounced: " + person}}
	}}, change...)...)
}

var (
	erasing = letters.Act{By: "bob", Reason: "request 17", Detail: "selector abc"}
	byHand  = letters.Act{By: "eve", Reason: "a test"}
)

// Feature D14: what a letter says of a person is gone, in whatever state the letter is. Its row stays, and what became
// of it. All other letters stay as they were, and no redrive takes what was erased.
func TestStore_erase(t *testing.T) { onEach(t, testStore_erase) }

func testStore_erase(t *testing.T, on fixture.Database) {
	db := on.Create(t)()
	store, ctx := storeOn(t, db), t.Context()
	const n = 450 // more than two transactions erase
	var batch []*message.Message
	for i := range n {
		batch = append(batch, personal(fmt.Sprint("ann-", i)), letter(fmt.Sprint("other-", i), "{}"))
	}
	publish(t, store, "orders.dlq", batch...)
	statuses := letters.Statuses()[:7]
	for i, status := range statuses { // the person has letters in every state
		if m, err := store.MarkAll(ctx, letters.Filter{IDs: []string{fmt.Sprint("ann-", i)}}, status, byHand); err != nil || m != 1 && status != letters.StatusWaiting {
			t.Fatal(status, m, err)
		}
	}
	taken := take(t, store, letters.Filter{IDs: []string{"ann-100", "other-100"}}, 2)
	testkit.Must(store.Inside().Record(ctx, nil, string(letters.EventEdited), letters.Act{By: "ann", Reason: "r", Detail: `{"set":{"customer":"` + person + `"}}`}, 1))
	f := letters.Filter{Metadata: map[string]string{"customer": person}}
	var before []string
	done, err := store.Inside().Erase(ctx, f, erasing, inside.EraseOptions{Before: func(_ context.Context, _ []int64, ids []string) error {
		before = append(before, ids...)
		return nil
	}})
	testkit.Require(t, err == nil && done == (inside.Erased{Letters: n - 1, InHand: 1}) && len(before) == n,
		"%+v, %d before, %v", done, len(before), err)
	testkit.Check(t, len(fixture.Saying(t, db, person, fixture.Tables...)) != 0,
		"the letter in hand says nothing of the person")
	testkit.NoError(t, fixture.Release(ctx, store, taken...))
	if done, err := store.Inside().Erase(ctx, f, erasing, inside.EraseOptions{}); err != nil || done != (inside.Erased{Letters: 1}) {
		t.Fatalf("after the lease: %+v, %v", done, err)
	}
	testkit.Returns(t, (inside.Erased{}))(store.Inside().Erase(ctx, f, erasing, inside.EraseOptions{}))
	said := fixture.Saying(t, db, person, fixture.Tables...)
	testkit.Check(t, len(said) <= 0, "%q say something of the person", said)
	wantNumbers(t, db, store)
	wantCount(t, store, letters.Filter{Statuses: []letters.Status{letters.StatusErased}}, n)
	wantCount(t, store, letters.Filter{}, n)

	erased := list(t, store, letters.Filter{IDs: []string{"ann-1"}, Statuses: letters.Statuses()})
	if len(erased) != 1 || erased[0].Status != letters.StatusErased || len(erased[0].Original.Payload) > 0 || len(erased[0].Original.Metadata) > 0 ||
		erased[0].Marked.By != "bob" || erased[0].Marked.Reason != "request 17" || erased[0].Size != 0 || erased[0].Failure.Description != "" {
		t.Errorf("%+v", erased)
	}
	history, err := store.History(ctx, erased[0].Seq)
	if got := kinds(history); err != nil || !slices.Equal(got, []letters.EventKind{letters.EventStored, letters.EventRedriven, letters.EventErased}) {
		t.Errorf("%q, %v", got, err)
	}
	testkit.Check(t, history[2].By == "bob" && history[2].Reason == "request 17" && history[2].Detail == "selector abc",
		"%+v", history[2])

	// It is at its end.
	all := letters.Filter{Statuses: letters.Statuses(), IDs: []string{"ann-1"}}
	if taken, err := fixture.Take(ctx, store, all, time.Hour, 10); err != nil || len(taken) > 0 {
		t.Errorf("taken: %+v, %v", taken, err)
	}
	if leased, err := fixture.Lease(ctx, store, all, []int64{erased[0].Seq}, time.Hour); err != nil || len(leased) > 0 {
		t.Errorf("leased: %+v, %v", leased, err)
	}
	if free, err := store.Inside().Free(ctx, letters.Filter{Statuses: []letters.Status{letters.StatusErased}}, 10); err != nil || len(free) > 0 {
		t.Errorf("free: %v, %v", free, err)
	}
	if m, err := store.MarkAll(ctx, all, letters.StatusWaiting, byHand); err != nil || m != 1 { // looked at, and left
		t.Errorf("marked %d, %v", m, err)
	}
	wantCount(t, store, letters.Filter{Statuses: []letters.Status{letters.StatusErased}}, n)
	publish(t, store, "orders.dlq", personal("ann-1")) // a broker had it still
	wantCount(t, store, letters.Filter{IDs: []string{"ann-1"}}, 1)
	wantNumbers(t, db, store)
	testkit.Returns(t, n)(store.Purge(ctx, letters.Filter{Statuses: []letters.Status{letters.StatusErased}}, byHand))
	wantNumbers(t, db, store)
	history, err = store.History(ctx, erased[0].Seq)
	if got := kinds(history); err != nil || slices.Contains(got, letters.EventStored) && len(got) != 5 {
		t.Errorf("of a letter that was purged, and came again: %q, %v", got, err)
	}
}

// Feature D14: an id that names a person is gone from the letters and from the record, which are found by its hash.
func TestStore_eraseForgetsIDs(t *testing.T) { onEach(t, testStore_eraseForgetsIDs) }

func testStore_eraseForgetsIDs(t *testing.T, on fixture.Database) {
	db := on.Create(t)()
	store, ctx := storeOn(t, db), t.Context()
	long := person + strings.Repeat("x", 300)
	publish(t, store, "orders.dlq", personal(person), personal(person, redrivenTimes(1)), personal(long), letter("", "no id"), letter("2", "{}"))
	testkit.Returns(t, 2)(store.MarkAll(ctx, letters.Filter{IDs: []string{person}}, letters.StatusDiscarded, byHand))
	options := inside.EraseOptions{ForgetIDs: true}
	done, err := store.Inside().Erase(ctx, letters.Filter{IDs: []string{person, long}}, erasing, options)
	testkit.Require(t, err == nil && done.Letters == 3, "%+v, %v", done, err)
	if done, err = store.Inside().Erase(ctx, letters.Filter{Payload: "no id"}, erasing, options); err != nil || done.Letters != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	said := fixture.Saying(t, db, person, fixture.Tables...)
	testkit.Check(t, len(said) <= 0, "%q say something of the person", said)
	if again, err := store.Inside().Erase(ctx, letters.Filter{IDs: []string{letters.ForgottenID(person)}}, erasing, options); err != nil || again.Letters != 0 {
		t.Errorf("%+v, %v", again, err)
	}
	events, err := store.Audit(ctx, letters.EventFilter{MessageIDs: []string{letters.ForgottenID(person)}})
	if got := kinds(events); err != nil || !slices.Equal(got, []letters.EventKind{letters.EventDiscarded, letters.EventDiscarded,
		letters.EventStored, letters.EventStored, letters.EventErased, letters.EventErased}) {
		t.Errorf("%q, %v", got, err)
	}
	for seq := int64(1); seq <= 5; seq++ {
		if history, err := store.History(ctx, seq); err != nil || len(history) == 0 || history[0].Kind != letters.EventStored {
			t.Errorf("of letter %d: %q, %v", seq, kinds(history), err)
		}
	}
}

// Feature D14: an erasure without a choice, a reason that no record can have, and a status by hand are refused. An
// erasure is on record by itself.
func TestStore_eraseRefuses(t *testing.T) {
	store, ctx := newStore(t), t.Context()
	publish(t, store, "orders.dlq", personal("1"))
	for want, f := range map[string]letters.Filter{
		"chooses every letter":  {Statuses: letters.Statuses(), MaxSeq: 7},
		"erased already":        {IDs: []string{"1"}, Statuses: []letters.Status{letters.StatusErased}},
		"Filter.Limit":          {IDs: []string{"1"}, Limit: 7},
		"Filter.IDs lists 501 ": {IDs: make([]string, 501)},
	} {
		testkit.Says(t, testkit.Err(store.Inside().Erase(ctx, f, erasing, inside.EraseOptions{})), want)
	}
	testkit.Says(t, testkit.Err(store.MarkAll(ctx, letters.Filter{}, letters.StatusErased, byHand)), "use Erase")
	if taken, err := fixture.Take(ctx, store, letters.Filter{}, time.Hour, 1); err != nil || fixture.Mark(ctx, store, taken[0], letters.StatusErased, byHand) == nil {
		t.Error("marked as erased", err)
	}
	stop := errors.New("no more")
	f := letters.Filter{IDs: []string{"1"}}
	if done, err := store.Inside().Erase(ctx, f, erasing, inside.EraseOptions{Before: func(context.Context, []int64, []string) error { return stop }}); !errors.Is(err, stop) || done.Letters != 0 {
		t.Error(done, err)
	}
	testkit.NoError(t, store.Inside().RecordErasure(ctx, erasing))
	events, err := store.Audit(ctx, letters.EventFilter{Kinds: []letters.EventKind{letters.EventErasure}})
	if err != nil || len(events) != 1 || events[0].Seq != 0 || events[0].By != "bob" || events[0].Detail != "selector abc" || events[0].MessageID != "" {
		t.Errorf("%+v, %v", events, err)
	}
	if history, err := store.History(ctx, 0); err != nil || len(history) > 1 {
		t.Errorf("%+v, %v", history, err)
	}
}

// ForgetIDs reaches what is on record of a message without a letter, about which a person decided in the order of its key.
func TestForgetDecided(t *testing.T) {
	store := newStore(t)
	in := store.Inside()
	tx := testkit.Must(in.DB().BeginTx(t.Context(), nil))
	for _, id := range []string{"4711", "other"} {
		testkit.NoError(t, in.RecordSequence(t.Context(), tx, id, letters.Act{By: "ann", Detail: "release"}))
	}
	testkit.NoError(t, tx.Commit())
	testkit.Must(in.Erase(t.Context(), letters.Filter{IDs: []string{"4711"}}, letters.Act{By: "bob"}, inside.EraseOptions{ForgetIDs: true}))
	events := testkit.Must(store.Audit(t.Context(), letters.EventFilter{}))
	if len(events) != 2 || !strings.HasPrefix(events[0].MessageID, "erased:") || events[1].MessageID != "other" {
		t.Errorf("%+v", events)
	}
}

// kept are the columns that stay when a letter is erased: where it was, what it was chosen by, and who erased it.
const kept = " identity dead_letter_topic origin_topic handler class reason type stack_hash status marked_by marked_why " +
	"redrive_id service cause arrived_redrive_id leased_by "

// A column of text that comes to the table is emptied with the letter, or is named above with a reason.
func TestErase_knowsEachColumn(t *testing.T) {
	db := fixture.SQLite.Create(t)()
	store, ctx := storeOn(t, db), t.Context()
	publish(t, store, "orders.dlq", personal("1"))
	columns := testkit.Must(db.Query(`SELECT name FROM pragma_table_info('spillway_dead_letters') WHERE type IN ('TEXT', 'BLOB')`))
	var names []string
	for columns.Next() {
		var name string
		testkit.NoError(t, columns.Scan(&name))
		if !strings.Contains(kept, " "+name+" ") {
			names = append(names, name)
		}
	}
	testkit.NoError(t, columns.Close())
	for _, name := range names {
		testkit.Must(db.Exec(`UPDATE spillway_dead_letters SET `+name+` = ?`, person))
	}
	_, err := store.Inside().Erase(ctx, letters.Filter{Handlers: []string{"billing"}}, erasing, inside.EraseOptions{ForgetIDs: true})
	testkit.NoError(t, err)
	for _, name := range names {
		var says sql.NullString
		testkit.NoError(t, db.QueryRow(fmt.Sprintf(`SELECT CAST(%s AS TEXT) FROM spillway_dead_letters`, name)).Scan(&says))
		if strings.Contains(says.String, person) {
			t.Errorf("column %s still has the person: empty it in eraseRow, or name it as kept", name)
		}
	}
}

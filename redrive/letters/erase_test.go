package letters_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// person is the value that must not be found after it was erased.
const person = fixture.Person

var (
	personal = fixture.Personal
	erasing  = letters.Act{By: "bob", Reason: "request 17", Detail: "selector abc"}
	byHand   = letters.Act{By: "eve", Reason: "a test"}
)

// Feature D14: what a letter says of a person is gone, its row stays, and no redrive takes it. Others stay.
func TestStore_erase(t *testing.T) { onEach(t, testStore_erase) }

func testStore_erase(t *testing.T, on fixture.Database) {
	db := on.Create(t)()
	store, ctx := storeOn(t, db), t.Context()
	const n = 250 // more than a transaction erases
	var batch []*message.Message
	for i := range n {
		batch = append(batch, personal(fmt.Sprint("ann-", i)), letter(fmt.Sprint("other-", i), "{}"))
	}
	publish(t, store, "orders.dlq", batch...)
	statuses := letters.Statuses()[:7]
	for i, status := range statuses { // the person has letters in every state
		m, err := store.MarkAll(ctx, letters.Filter{IDs: []string{fmt.Sprint("ann-", i)}}, status, byHand)
		testkit.Require(t, err == nil && (m == 1 || status == letters.StatusWaiting), "%v %v %v", status, m, err)
	}
	taken := take(t, store, letters.Filter{IDs: []string{"ann-100", "other-100"}}, 2)
	testkit.Must(hidden.Of(store).Record(ctx, nil, letters.EventEdited, letters.Act{By: "ann", Reason: "r", Detail: `{"set":{"customer":"` + person + `"}}`}, 1))
	f := letters.Filter{Metadata: map[string]string{"customer": person}}
	testkit.Returns(t, inside.Erased{Letters: n - 1, InHand: 1})(hidden.Of(store).Erase(ctx, f, erasing, inside.EraseOptions{}))
	testkit.Check(t, len(fixture.Saying(t, db, person, fixture.Tables...)) != 0,
		"the letter in hand says nothing of the person")
	testkit.NoError(t, fixture.Release(ctx, store, taken...))
	for _, want := range []int{1, 0} { // after the lease
		testkit.Returns(t, inside.Erased{Letters: want})(hidden.Of(store).Erase(ctx, f, erasing, inside.EraseOptions{}))
	}
	said := fixture.Saying(t, db, person, fixture.Tables...)
	testkit.Check(t, len(said) <= 0, "%q say something of the person", said)
	wantNumbers(t, db, store)
	wantCount(t, store, letters.Filter{Statuses: []letters.Status{letters.StatusErased}}, n)
	wantCount(t, store, letters.Filter{}, n)

	erased := list(t, store, letters.Filter{IDs: []string{"ann-1"}, Statuses: letters.Statuses()})
	testkit.Check(t, len(erased) == 1 && erased[0].Status == letters.StatusErased &&
		len(erased[0].Original.Payload) == 0 && len(erased[0].Original.Metadata) == 0 && erased[0].Marked.By == "bob" &&
		erased[0].Marked.Reason == "request 17" && erased[0].Size == 0 && erased[0].Failure.Description == "",
		"%+v", erased)
	event := wantHistory(t, store, erased[0].Seq, "stored redriven erased")[2]
	testkit.Check(t, event.By == "bob" && event.Reason == "request 17" && event.Detail == "selector abc", "%+v", event)

	// It is at its end.
	all := letters.Filter{Statuses: letters.Statuses(), IDs: []string{"ann-1"}}
	testkit.Equal(t, "taken", len(testkit.Must(fixture.Take(ctx, store, all, time.Hour, 10))), 0)
	leased := testkit.Must(fixture.Lease(ctx, store, all, []int64{erased[0].Seq}, time.Hour))
	testkit.Equal(t, "leased", len(leased), 0)
	testkit.Returns(t, 1)(store.MarkAll(ctx, all, letters.StatusWaiting, byHand)) // looked at, and left
	wantCount(t, store, letters.Filter{Statuses: []letters.Status{letters.StatusErased}}, n)
	publish(t, store, "orders.dlq", personal("ann-1")) // a broker had it still
	wantCount(t, store, letters.Filter{IDs: []string{"ann-1"}}, 1)
	wantNumbers(t, db, store)
	testkit.Returns(t, n)(store.Purge(ctx, letters.Filter{Statuses: []letters.Status{letters.StatusErased}}, byHand))
	wantNumbers(t, db, store)
	history := testkit.Must(store.History(ctx, erased[0].Seq))
	testkit.Equal(t, "events of a letter that was purged, and came again", len(history), 5)
}

// Feature D14: an erasure without a choice is refused, and no status by hand erases. An erasure is on record.
func TestStore_eraseRefuses(t *testing.T) {
	store, ctx := newStore(t), t.Context()
	publish(t, store, "orders.dlq", personal("1"))
	for want, f := range map[string]letters.Filter{
		"chooses every letter":  {Statuses: letters.Statuses(), MaxSeq: 7},
		"erased already":        {IDs: []string{"1"}, Statuses: []letters.Status{letters.StatusErased}},
		"Filter.Limit":          {IDs: []string{"1"}, Limit: 7},
		"Filter.IDs lists 501 ": {IDs: make([]string, 501)},
	} {
		testkit.Says(t, testkit.Err(hidden.Of(store).Erase(ctx, f, erasing, inside.EraseOptions{})), want)
	}
	testkit.Says(t, testkit.Err(store.MarkAll(ctx, letters.Filter{}, letters.StatusErased, byHand)), "use Erase")
	stop := errors.New("no more")
	f := letters.Filter{IDs: []string{"1"}}
	stopped := inside.EraseOptions{Before: func(context.Context, []int64, []string) error { return stop }}
	testkit.Is(t, testkit.Err(hidden.Of(store).Erase(ctx, f, erasing, stopped)), stop)
	wantCount(t, store, f, 1)
	testkit.NoError(t, hidden.Of(store).RecordErasure(ctx, erasing))
	events, err := store.Audit(ctx, letters.EventFilter{Kinds: []letters.EventKind{letters.EventErasure}})
	testkit.Check(t, err == nil && len(events) == 1 && events[0].Seq == 0 && events[0].By == "bob" &&
		events[0].Detail == "selector abc" && events[0].MessageID == "", "%+v, %v", events, err)
}

// Feature D14: ForgetIDs reaches the record, also of messages without a letter. It is found by the id's hash.
func TestStore_eraseForgetsIDs(t *testing.T) {
	db := sqliteFile.Create(t)()
	store, ctx, long := storeOn(t, db), t.Context(), person+strings.Repeat("x", 300)
	publish(t, store, "orders.dlq", personal(person), personal(person, redrivenTimes(1)), personal(long), letter("", "no id"))
	tx := testkit.Must(db.BeginTx(ctx, nil))
	decided := "key of " + person
	for _, id := range []string{decided, "other"} {
		testkit.NoError(t, hidden.Of(store).RecordSequence(ctx, tx, id, letters.Act{By: "ann", Detail: "release"}))
	}
	testkit.NoError(t, tx.Commit())
	options := inside.EraseOptions{ForgetIDs: true}
	for want, f := range map[int]letters.Filter{3: {IDs: []string{person, long, decided}}, 1: {Payload: "no id"}} {
		testkit.Returns(t, inside.Erased{Letters: want})(hidden.Of(store).Erase(ctx, f, erasing, options))
	}
	said := fixture.Saying(t, db, person, fixture.Tables...)
	testkit.Check(t, len(said) == 0, "%q say something of the person", said)
	events := testkit.Must(store.Audit(ctx, letters.EventFilter{MessageIDs: []string{letters.ForgottenID(person)}}))
	testkit.Equal(t, "on record", kinds(events), "stored stored erased erased")
	for seq := int64(1); seq <= 4; seq++ {
		wantHistory(t, store, seq, map[bool]string{true: "stored stored erased erased", false: "stored erased"}[seq < 3])
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
	_, err := hidden.Of(store).Erase(ctx, letters.Filter{Handlers: []string{"billing"}}, erasing, inside.EraseOptions{ForgetIDs: true})
	testkit.NoError(t, err)
	for _, name := range names {
		var says sql.NullString
		testkit.NoError(t, db.QueryRow(fmt.Sprintf(`SELECT CAST(%s AS TEXT) FROM spillway_dead_letters`, name)).Scan(&says))
		testkit.Check(t, !strings.Contains(says.String, person),
			"column %s still has the person: empty it in eraseRow, or name it as kept", name)
	}
}

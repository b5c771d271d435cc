package letters_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/hold/outage"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V9, promise P1: after a restore of data alone PostgreSQL gives new rows the numbers of others. That is about
// us: a dead letter is held, and stored whole once the statement in the error has run. Its handler is not called again.
func TestStore_numbersTaken(t *testing.T) {
	db := databases.Postgres.New(t)
	store := storeOn(t, db)
	publish(t, store, "orders.dlq", several(300)...)
	mustExec(t, db, `SELECT setval(pg_get_serial_sequence('spillway_dead_letters', 'seq'), 1)`)
	var own *database.OwnKeyError
	testkit.Check(t, errors.As(hidden.Of(store).Numbered(t.Context()), &own), "no one looks ahead")
	for _, some := range [][]*message.Message{{letter("single", "{}")}, {letter("one", "{}"), letter("two", "{}")}} {
		err := store.Publish("orders.dlq", some...)
		testkit.Require(t, errors.As(err, &own) && outage.Unavailable(err), "%d letters: %v", len(some), err)
	}
	mustExec(t, db, `SELECT setval(pg_get_serial_sequence('spillway_dead_letters', 'seq'), 1)`)

	queue := testkit.Must(poison.NewQueue(store, poison.QueueConfig{}))
	var calls atomic.Int64
	handle := queue.Middleware(func(*message.Message) ([]*message.Message, error) {
		calls.Add(1)
		return nil, classify.Permanent(errors.New("no such customer"))
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	msg := message.NewMessage("held", []byte("{}"))
	msg.Metadata = message.Metadata{"tenant": "acme", "correlation_id": "c-1"}
	msg.SetContext(ctx)
	done := make(chan error, 1)
	go func() { done <- testkit.Err(handle(msg)) }()
	select {
	case err := <-done:
		t.Fatalf("it is not held: %v; %+v", err, list(t, store, letters.Filter{IDs: []string{"held"}}))
	case <-time.After(2 * time.Second): // longer than a publisher has its tries
	}
	mustExec(t, db, own.Remedy)
	testkit.NoError(t, <-done)
	held := list(t, store, letters.Filter{IDs: []string{"held"}})
	testkit.Require(t, len(held) == 1 && held[0].Original.Metadata["tenant"] == "acme" && held[0].Failure.Reason != "" && calls.Load() == 1,
		"%d calls, %+v", calls.Load(), held)
	testkit.NoError(t, hidden.Of(store).Numbered(t.Context()))
}

// Features V9, R6: where no event can be recorded, nothing is published, and the error has the remedy.
func TestStore_numbersOfEventsTaken(t *testing.T) {
	db := databases.Postgres.New(t)
	store := storeOn(t, db)
	publish(t, store, "orders.dlq", several(4)...)
	all := letters.Filter{}
	act := letters.Act{By: "ann", Reason: "of no use"}
	testkit.Returns(t, 4)(store.MarkAll(t.Context(), all, letters.StatusDiscarded, act))
	testkit.Returns(t, 4)(store.MarkAll(t.Context(), letters.Filter{Statuses: []letters.Status{letters.StatusDiscarded}}, letters.StatusWaiting, act))
	taken := testkit.Must(fixture.Take(t.Context(), store, all, time.Minute, 1))
	mustExec(t, db, `SELECT setval(pg_get_serial_sequence('spillway_letter_events', 'event'), 1)`)
	var own *database.OwnKeyError
	err := testkit.Err(store.MarkAll(t.Context(), all, letters.StatusDiscarded, act))
	testkit.Check(t, errors.As(err, &own) && own.Table == "spillway_letter_events", "discard: %v", err)
	err = testkit.Err(fixture.MarkEach(t.Context(), store, letters.StatusRedriven, act, taken...))
	testkit.Check(t, errors.As(err, &own), "settle: %v", err)
	other := storeOn(t, db) // as a drain that begins
	err = testkit.Err(fixture.Take(t.Context(), other, all, time.Minute, 2))
	testkit.Check(t, errors.As(err, &own) && outage.Unavailable(err), "take: %v", err)
	mustExec(t, db, own.Remedy)
	testkit.Equal(t, "taken", len(testkit.Must(fixture.Take(t.Context(), other, all, time.Minute, 2))), 2)
	testkit.Equal(t, "settled", len(testkit.Must(fixture.MarkEach(t.Context(), store, letters.StatusRedriven, act, taken...))), 1)
}

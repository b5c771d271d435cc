package sequence_test

import (
	"context"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
)

// What stands is counted by partition and group, and a held message is not late.
func TestStanding(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db := d.Open(t, address)
		channel := struct{ parked.Listed }{parked.ListedIn(db, "shop")}
		testkit.Require(t, testkit.Must(parked.TableOf(t.Context(), channel)) == nil, "there is a table")
		store := testkit.Must(sequence.NewStore(t.Context(), db, "shop"))
		other := testkit.Must(sequence.NewStore(t.Context(), db, "other"))
		table := testkit.Must(parked.TableOf(t.Context(), channel))
		testkit.Check(t, len(testkit.Must(table.Standing(t.Context()))) == 0, "something is parked")
		billing := parked.Source{Group: "billing", Topic: "orders", Partition: 3}
		mailing := parked.Source{Group: "mailing", Topic: "orders", Partition: 3}
		for position, row := range []struct {
			in   *sequence.Store
			of   parked.Source
			key  string
			wait time.Duration
			held bool
		}{
			{store, billing, "a", time.Hour, false}, {store, billing, "a", -9 * time.Hour, false}, {store, billing, "", -time.Hour, false},
			{store, billing, "c", -5 * time.Hour, true}, {store, billing, "c", time.Hour, true}, {other, billing, "a", -time.Hour, true},
			{store, mailing, "a", -10 * time.Second, false},
		} {
			parked := rowOf([]byte(row.key), int64(position), "id-"+row.key, "")
			parked.Held = row.held
			testkit.NoError(t, row.in.Park(t.Context(), row.of, parked, row.wait))
		}
		all := testkit.Must(table.Standing(t.Context()))
		testkit.Require(t, len(all) == 2, "%+v", all)
		first, second := all[0], all[1]
		testkit.Check(t, first.Overdue >= time.Hour && first.Overdue <= 2*time.Hour && first.IsLate() && !second.IsLate(),
			"%+v, %+v", first, second)
		first.Overdue, second.Overdue = 0, 0
		testkit.Equal(t, "", first,
			parked.Standing{Group: "billing", Topic: "orders", Partition: 3, Sequences: 3, Messages: 5, Held: 1})
		testkit.Equal(t, "", second,
			parked.Standing{Group: "mailing", Topic: "orders", Partition: 3, Sequences: 1, Messages: 1})
		held := testkit.Must(table.Held(t.Context(), 10))
		h := held[0]
		testkit.Check(t, len(held) == 1 && *h.Key == "c" && h.Messages == 2 && h.First == "id-c" && h.Position == 3 && h.Consumer == "shop/billing",
			"%+v", held)
		testkit.Must(parked.Decide(t.Context(), db, "shop", h.Seq, parked.Deciding{What: parked.Release, By: "ann", Record: noRecord}))
		first = testkit.Must(table.Standing(t.Context()))[0]
		testkit.Check(t, first.Held == 0 && first.Overdue <= 2*time.Hour,
			"a released key is held, or late since then: %+v", first)
		testkit.Check(t, len(testkit.Must(table.Held(t.Context(), 10))) == 0, "it is released")
		testkit.NoError(t, db.Close())
		testkit.Check(t, testkit.Err(table.Standing(context.Background())) != nil, "a closed database says nothing")
	})
}

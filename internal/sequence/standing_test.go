package sequence_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	watermill "github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/sequence"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
)

// What stands is counted by partition and group, and a held message is not late.
func TestStanding(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db := d.Open(t, address)
		channel := struct{ sequence.Listed }{sequence.ListedIn(db, "shop")}
		if table, err := sequence.TableOf(t.Context(), channel); table != nil || err != nil {
			t.Fatalf("there is no table: %v, %v", table, err)
		}
		store := testkit.Must(sequence.NewStore(t.Context(), db, "shop"))
		other := testkit.Must(sequence.NewStore(t.Context(), db, "other"))
		table := testkit.Must(sequence.TableOf(t.Context(), channel))
		if all, err := table.Standing(t.Context()); len(all) > 0 || err != nil {
			t.Errorf("nothing is parked: %+v, %v", all, err)
		}
		billing := sequence.Source{Group: "billing", Topic: "orders", Partition: 3}
		mailing := sequence.Source{Group: "mailing", Topic: "orders", Partition: 3}
		for position, row := range []struct {
			in   *sequence.Store
			of   sequence.Source
			key  string
			wait time.Duration
			held bool
		}{
			{store, billing, "a", time.Hour, false}, {store, billing, "a", -9 * time.Hour, false}, {store, billing, "", -time.Hour, false},
			{store, billing, "c", -5 * time.Hour, true}, {store, billing, "c", time.Hour, true}, {other, billing, "a", -time.Hour, true},
			{store, mailing, "a", -10 * time.Second, false},
		} {
			msg := newMessage("id-" + row.key)
			testkit.NoError(t, row.in.Park(t.Context(), row.of, &sequence.Row{Lane: []byte(row.key), RecordKey: []byte(row.key), Position: int64(position),
				Fingerprint: sequence.FingerprintOf(msg), Key: sequence.Key{Consumer: "shop/billing", ID: msg.UUID}, Msg: msg, Held: row.held}, row.wait))
		}
		all := testkit.Must(table.Standing(t.Context()))
		testkit.Require(t, len(all) == 2, "%+v", all)
		first, second := all[0], all[1]
		if overdue := first.Overdue; overdue < time.Hour || overdue > 2*time.Hour || !first.IsLate() || second.IsLate() {
			t.Errorf("%+v, %+v", first, second)
		}
		first.Overdue, second.Overdue = 0, 0
		if want := (sequence.Standing{Group: "billing", Topic: "orders", Partition: 3, Sequences: 3, Messages: 5, Held: 1}); first != want {
			t.Errorf("%+v, want %+v", first, want)
		}
		if want := (sequence.Standing{Group: "mailing", Topic: "orders", Partition: 3, Sequences: 1, Messages: 1}); second != want {
			t.Errorf("%+v, want %+v", second, want)
		}
		held := testkit.Must(table.Held(t.Context(), 10))
		if len(held) != 1 || *held[0].Key != "c" || held[0].Messages != 2 || held[0].First != "id-c" || held[0].Position != 3 || held[0].Consumer != "shop/billing" {
			t.Errorf("%+v", held)
		}
		release := sequence.Deciding{What: sequence.Release, By: "ann", Record: func(*sql.Tx, string, sequence.Parked, int) error { return nil }}
		testkit.Must(sequence.Decide(t.Context(), db, "shop", held[0].Seq, release))
		if first := testkit.Must(table.Standing(t.Context()))[0]; first.Held > 0 || first.Overdue > 2*time.Hour {
			t.Errorf("a released key is neither held nor late since it was held: %+v", first)
		}
		if held := testkit.Must(table.Held(t.Context(), 10)); len(held) > 0 {
			t.Errorf("%+v is released", held)
		}
		testkit.NoError(t, db.Close())
		if _, err := table.Standing(context.Background()); err == nil {
			t.Error("a closed database says nothing")
		}
	})
}

func newMessage(id string) *watermill.Message { return watermill.NewMessage(id, []byte("{}")) }

package sequence_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	watermill "github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
)

var noRecord = func(*sql.Tx, string, parked.Parked, int) error { return nil }

func seqOf(t *testing.T, db *sql.DB, id string) int64 {
	t.Helper()
	for _, p := range testkit.Must(parked.List(t.Context(), db, "shop", 10)) {
		if p.First == id {
			return p.Seq
		}
	}
	t.Fatalf("%s is first in no sequence", id)
	return 0
}

// Feature R13: a hold counts while its message is unsettled and undecided, and a decision is for the first row alone.
func TestHoldsThatCount(t *testing.T) {
	s := newTables(t)
	var held [3]message
	for i, key := range []string{"settled", "decided", "open"} {
		held[i] = message{key + "-1", key, 2 * i}
		testkit.Check(t, s.Park(held[i], true) && s.Park(message{key + "-2", key, 2*i + 1}, true), "%s is not parked", key)
	}
	s.Settle(held[0])
	s.Decide(held[1], parked.Skip)
	for _, m := range held {
		head, _ := s.Head(m.key)
		testkit.Equal(t, m.key, head.held, m.key == "open")
	}
	var behind int64
	testkit.NoError(t, s.db.QueryRow(`SELECT MAX(seq) FROM spillway_parked`).Scan(&behind)) // open-2
	_, err := parked.Decide(t.Context(), s.db, "shop", behind, parked.Deciding{What: parked.Skip, Record: noRecord})
	testkit.Is(t, err, parked.ErrNotFirst)
}

// An owner sees within seconds what a person decided. A decision outlasts that the message fails again meanwhile, and what
// cannot be put on record is not decided.
func TestOwnerSeesDecisions(t *testing.T) {
	t.Cleanup(sequence.LookEvery(20 * time.Millisecond))
	databases.Each(t, func(t *testing.T, kind databases.Database, address string) {
		db := kind.Open(t, address)
		_, s := opened(t, db)
		waits, held := rowOf([]byte("a"), 1, "a", ""), rowOf([]byte("b"), 2, "b", "")
		held.Held = true
		for _, row := range []*sequence.Row{waits, held} {
			testkit.NoError(t, s.Park(t.Context(), source, row, time.Hour))
		}
		o := (&sequence.Ordering{Store: s}).Own(source)
		o.Load(t.Context())
		errRecord := errors.New("no record")
		_, err := parked.Decide(t.Context(), db, "shop", seqOf(t, db, "a"), parked.Deciding{What: parked.Skip,
			Record: func(*sql.Tx, string, parked.Parked, int) error { return errRecord }})
		testkit.Is(t, err, errRecord)
		short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		testkit.Check(t, o.Next(short) == nil, "a lane is due")
		for _, c := range []struct {
			row  *sequence.Row
			what parked.Decision
			left parked.Decision // when the message was held, or waits, again
		}{{waits, parked.Skip, parked.Skip}, {held, parked.Release, parked.Undecided}} {
			key := string(c.row.Lane)
			deciding := parked.Deciding{What: c.what, By: "ann", Record: noRecord}
			testkit.Returns(t, 1)(parked.Decide(t.Context(), db, "shop", seqOf(t, db, key), deciding))
			l := o.Next(t.Context())
			rows, _ := o.Heads(t.Context(), l)
			testkit.Check(t, string(l.Key) == key && len(rows) == 1 && rows[0].Decision == c.what && rows[0].By == "ann" && !rows[0].Held &&
				time.Until(rows[0].Due) <= 0, "%s: %+v", l.Key, rows)
			testkit.NoError(t, s.Again(t.Context(), source, c.row, time.Hour))
			testkit.Equal(t, key+": left", testkit.Must(s.Heads(t.Context(), source, c.row.Lane, 1))[0].Decision,
				c.left)
			testkit.NoError(t, s.Delete(t.Context(), source, c.row))
			o.Drain(t.Context(), t.Context(), l, nil) // nothing is left
		}
	})
}

// At a limit the source waits, for a key or for all, and goes on when there is room: by a drain, or because another process
// deleted rows.
func TestOwnerAdmits(t *testing.T) {
	t.Cleanup(sequence.LookEvery(20 * time.Millisecond))
	databases.Each(t, func(t *testing.T, kind databases.Database, address string) {
		_, s := opened(t, kind.Open(t, address))
		const big = 3 << 20
		ordering := &sequence.Ordering{Store: s, Limits: sequence.Limits{Messages: 2, All: 4, MessageBytes: big, AllBytes: 1 << 30}}
		o := ordering.Own(source)
		admits := func(key string, want bool) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			testkit.Equal(t, key, o.Admit(ctx, []byte(key)), want)
		}
		park := func(key string, position int64, size int) {
			t.Helper()
			d := sequence.Delivery{Owner: o, Lane: []byte(key), RecordKey: []byte(key), Position: position}
			msg := watermill.NewMessage(key, make([]byte, size))
			testkit.NoError(t, d.Park(t.Context(), msg, &sequence.Row{Msg: msg}, time.Hour))
		}
		admits("a", true)
		park("a", 1, 0)
		admits("a", true)
		park("a", 2, 0)
		admits("a", false)
		admits("b", true)
		park("b", 3, big)
		admits("b", false) // for its bytes
		admits("c", true)
		testkit.Check(t, o.Admit(t.Context(), nil), "a message without a key waits for those of others")
		park("c", 4, 0)
		admits("d", false) // for all
		o = ordering.Own(source)
		o.Load(t.Context())
		admits("d", false) // a new owner knows
		row := testkit.Must(s.Heads(t.Context(), source, []byte("a"), 1))[0]
		testkit.Check(t, o.Delete(t.Context(), row), "it is not deleted")
		admits("d", true)
		admits("a", true)
		admits("b", false)
		row = testkit.Must(s.Heads(t.Context(), source, []byte("b"), 1))[0]
		testkit.NoError(t, s.Delete(t.Context(), source, row))
		ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
		defer cancel()
		testkit.Check(t, o.Admit(ctx, []byte("b")), "the source does not see that there is room")
	})
}

package letters_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V9: leases are exclusive, end with Mark or Release, and are proven by their token.
func TestStore_takeMarkRelease(t *testing.T) { onEach(t, testStore_takeMarkRelease) }

func testStore_takeMarkRelease(t *testing.T, on fixture.Database) {
	store, ctx := on.NewStore(t), t.Context()
	publish(t, store, "orders.dlq", several(3)...)
	taken, err := fixture.Take(ctx, store, letters.Filter{}, time.Hour, 2)
	testkit.Require(t, err == nil && len(taken) == 2 && taken[0].Letter.Original.UUID == "id-0" &&
		time.Until(taken[0].Claim.Until) >= 59*time.Minute, "%+v, %v", taken, err)
	rest := testkit.Must(fixture.Take(ctx, store, letters.Filter{}, time.Hour, 10))
	testkit.Require(t, len(rest) == 1 && rest[0].Claim.Token != taken[0].Claim.Token, "%+v", rest)
	testkit.NoError(t, fixture.Mark(ctx, store, taken[0], letters.StatusDiscarded, letters.Act{By: "ann"}))
	for _, lost := range []fixture.Taken{taken[0], forged(taken[1], "x"), forged(taken[0], "")} {
		testkit.Is(t, fixture.Mark(ctx, store, lost, letters.StatusRedriven, letters.Act{}), letters.ErrLeaseLost)
	}
	e := list(t, store, status(letters.StatusDiscarded))
	testkit.Check(t, len(e) == 1 && e[0].Marked.By == "ann" && time.Since(e[0].MarkedAt) <= time.Minute, "%+v", e)
	testkit.NoError(t, errors.Join(fixture.Release(ctx, store, rest...), fixture.Release(ctx, store, taken...)))
	testkit.Equal(t, "again", len(testkit.Must(fixture.Take(ctx, store, letters.Filter{}, time.Hour, 10))), 2)
}

// Decision 12: an expired lease is free for the next worker, and the one that lost it cannot mark any more.
func TestStore_leaseExpires(t *testing.T) { onEach(t, testStore_leaseExpires) }

func testStore_leaseExpires(t *testing.T, on fixture.Database) {
	store, ctx := on.NewStore(t), t.Context()
	publish(t, store, "orders.dlq", letter("1", "a"))
	first, err := fixture.Take(ctx, store, letters.Filter{}, 20*time.Millisecond, 1)
	testkit.Require(t, err == nil && len(first) == 1, "%v %v", first, err)
	var second []fixture.Taken
	eventually(t, "the expired lease is taken over", func() bool {
		second, err = fixture.Take(ctx, store, letters.Filter{}, time.Hour, 1)
		return err != nil || len(second) == 1
	})
	testkit.Require(t, err == nil && !time.Now().Before(first[0].Claim.Until), "taken over too early, or %v", err)
	testkit.Is(t, fixture.Mark(ctx, store, first[0], letters.StatusRedriven, letters.Act{}), letters.ErrLeaseLost)
	testkit.NoError(t, fixture.Mark(ctx, store, second[0], letters.StatusRedriven, letters.Act{}))
}

// Promise P4: a lease locks the letters that it takes, and no others: a Mark of another one does not wait for it.
func TestStore_leaseLocksNoOther(t *testing.T) {
	for _, on := range []fixture.Database{postgresSchema, mysqlDatabase} {
		t.Run(on.Name, func(t *testing.T) {
			db := on.Create(t)()
			store, ctx, ofB := storeOn(t, db), t.Context(), letters.Filter{Handlers: []string{"b"}}
			publish(t, store, "orders.dlq", fixture.OfTwo(60)...)
			chosen, err := hidden.Of(store).Free(ctx, ofB, 10)
			testkit.Require(t, err == nil && len(chosen) == 10, "%v %v", chosen, err)
			tx := testkit.Must(db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}))
			defer func() { _ = tx.Rollback() }()
			testkit.NoError(t, store.LeaseWithin(ctx, tx, ofB, append(chosen, 1, 3))) // two that the filter does not choose
			rest, err := fixture.Take(ctx, store, letters.Filter{}, time.Hour, 60)    // what is locked it passes over
			testkit.Check(t, err == nil && len(rest) == 50, "%d of 50 others are free, %v", len(rest), err)
		})
	}
}

// Promise P4: on SQLite a Take waits for the writer only if there is something to take.
func TestStore_sqliteSelectiveTakeNeedsNoWriter(t *testing.T) {
	open := sqliteFile.Create(t)
	db := open()
	store := storeOn(t, db)
	publish(t, store, "orders.dlq", fixture.OfTwo(10)...)
	writer := testkit.Must(open().Conn(t.Context()))
	defer func() { _ = writer.Close() }()
	testkit.Must(writer.ExecContext(t.Context(), `BEGIN IMMEDIATE`))
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	taken, err := fixture.Take(ctx, store, letters.Filter{Handlers: []string{"c"}}, time.Hour, 10)
	testkit.Check(t, err == nil && len(taken) == 0, "%d taken, %v", len(taken), err)
	testkit.Must(writer.ExecContext(t.Context(), `ROLLBACK`))
}

// Decision 12: leases end by the database's clock, whatever that of a process says.
func TestStore_leasesByTheDatabasesClock(t *testing.T) {
	dsn := mysqltest.Database(t)
	at := func(shift time.Duration) *letters.Store { // a store whose database says that it is now and shift
		now := float64(time.Now().Add(shift).UnixMilli()) / 1000
		return storeOn(t, mysqltest.Open(t, mysqltest.With(dsn, fmt.Sprintf("timestamp=%.3f", now))))
	}
	publish(t, at(0), "orders.dlq", letter("1", "a"))
	for _, step := range []struct {
		shift time.Duration
		want  int
	}{{48 * time.Hour, 1}, {48*time.Hour + 30*time.Minute, 0}, {50 * time.Hour, 1}, {0, 0}} {
		taken, err := fixture.Take(t.Context(), at(step.shift), letters.Filter{}, time.Hour, 1)
		testkit.Require(t, err == nil && len(taken) == step.want,
			"at %s: %d taken, %v, want %d", step.shift, len(taken), err, step.want)
	}
}

// Decision 18: letters that were chosen before are leased, but for those that were marked meanwhile.
func TestStore_leaseOfChosen(t *testing.T) { onEach(t, testStore_leaseOfChosen) }

func testStore_leaseOfChosen(t *testing.T, on fixture.Database) {
	store, ctx := on.NewStore(t), t.Context()
	publish(t, store, "orders.dlq", several(4)...)
	last, err := hidden.Of(store).LastSeq(ctx)
	testkit.Require(t, err == nil && last == 4, "%v %v", last, err)
	publish(t, store, "orders.dlq", letter("late", "a"))
	chosen, err := hidden.Of(store).Free(ctx, letters.Filter{MaxSeq: last}, 100)
	testkit.Require(t, err == nil && len(chosen) == 4, "%v %v", chosen, err)
	first := testkit.Must(fixture.Take(ctx, store, letters.Filter{}, time.Hour, 2))
	testkit.Require(t, fixture.Mark(ctx, store, first[0], letters.StatusDiscarded, letters.Act{}) == nil, "%v", first)
	leased := testkit.Must(fixture.Lease(ctx, store, letters.Filter{}, chosen, time.Hour))
	testkit.Require(t, len(leased) == 2 && leased[0].Seq == 3 && leased[1].Seq == 4, "%+v", leased)
	testkit.NoError(t, fixture.Postpone(ctx, store, leased[0]))
	again, err := fixture.Take(ctx, store, letters.Filter{}, time.Hour, 9)
	testkit.Check(t, err == nil && len(again) == 2 && again[1].Original.UUID == leased[0].Original.UUID &&
		again[1].Seq > 5, "%+v, %v", again, err)
	testkit.Is(t, fixture.Postpone(ctx, store, leased[0]), letters.ErrLeaseLost)
}

// Decision 12: Renew returns the letters that are still held, and takes none. Filter.Leased finds them.
func TestStore_renew(t *testing.T) { onEach(t, testStore_renew) }

func testStore_renew(t *testing.T, on fixture.Database) {
	store, ctx := on.NewStore(t), t.Context()
	publish(t, store, "orders.dlq", several(3)...)
	taken, err := fixture.Take(ctx, store, letters.Filter{}, 20*time.Millisecond, 2)
	testkit.Require(t, err == nil && fixture.Release(ctx, store, taken[1]) == nil, "%v %v", taken, err)
	still, err := fixture.Renew(ctx, store, 2*time.Hour, taken...)
	testkit.Check(t, err == nil && len(still) == 1 && still[0].Seq == taken[0].Seq &&
		time.Until(still[0].Claim.Until) >= time.Hour, "%+v, %v", still, err)
	still, err = fixture.Renew(ctx, store, time.Hour, forged(taken[1], ""))
	testkit.Check(t, err == nil && len(still) == 0, "without a lease: %+v, %v", still, err)
	eventually(t, "the first lease is over", func() bool { return time.Since(taken[0].Claim.Until) > 20*time.Millisecond })
	next, err := fixture.Take(ctx, store, letters.Filter{}, time.Hour, 1)
	testkit.Require(t, err == nil && len(next) == 1, "%v %v", next, err)
	leased, err := store.Heads(ctx, letters.Filter{Leased: true})
	testkit.Check(t, err == nil && len(leased) == 2 && leased[0].Seq == taken[0].Seq && leased[1].Seq == next[0].Seq, "%+v %v", leased, err)
}

// forged is a letter with a token that was not given out for it.
func forged(t fixture.Taken, token string) fixture.Taken {
	t.Claim.Token = token
	return t
}

// Promise P4: what List and a claim read at once is bounded in bytes, at least one letter, and all letters come.
func TestStore_readsAtMost(t *testing.T) { onEach(t, testStore_readsAtMost) }

func testStore_readsAtMost(t *testing.T, on fixture.Database) {
	store := on.NewStore(t)
	store.ReadAtMost(300_000)
	for i := range 9 {
		size := 90_000
		if i == 4 {
			size = 400_000 // more than that alone
		}
		publish(t, store, "orders.dlq", letter(fmt.Sprint(i), strings.Repeat("x", size)))
	}
	var pages []int
	for f := (letters.Filter{}); ; {
		page := list(t, store, f)
		if len(page) == 0 {
			break
		}
		pages, f.After = append(pages, len(page)), page[len(page)-1].Seq
	}
	testkit.Check(t, fmt.Sprint(pages) == "[3 1 1 3 1]", "pages of %v letters", pages)
	for _, want := range []int{3, 1, 1, 3, 1, 0} {
		taken, err := fixture.Take(t.Context(), store, letters.Filter{}, time.Hour, 100)
		testkit.Require(t, err == nil && len(taken) == want, "%d taken, %v, want %d", len(taken), err, want)
	}
}

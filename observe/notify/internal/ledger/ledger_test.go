package ledger

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var rules = Rules{Window: time.Hour, Settle: time.Minute, Lease: 30 * time.Second, MaxNew: 3, Lasts: func(kind string) bool { return kind == "state" }, Many: "many"}

var at = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func event(subject string, n int64) Report {
	return Report{Key: Key{"event", subject}, N: n, First: at, Last: at.Add(time.Duration(n) * time.Second), About: "about " + subject}
}

func state(subject string, n int64) Report {
	return Report{Key: Key{"state", subject}, N: n, First: at, Last: at.Add(time.Second), About: "about " + subject}
}

// world is where a test runs: some instances, and a clock that moves on demand.
type world struct {
	testing.TB
	open    func(holder string) *Ledger
	advance func(time.Duration)
}

// each runs a test in memory, with the clock of a bubble, and in each database, whose rows are moved into the past.
func each(t *testing.T, test func(world)) {
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			one := InMemory("", rules)
			test(world{t, func(holder string) *Ledger { return &Ledger{one.entries, rules, holder} }, time.Sleep})
		})
	})
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db := d.Open(t, address)
		test(world{t, func(holder string) *Ledger { return inTable(t, d.Open(t, address), holder) }, func(by time.Duration) { age(t, db, by) }})
	})
}

func inTable(t testing.TB, db *sql.DB, holder string) *Ledger {
	return testkit.Must(InTable(t.Context(), db, "shop", holder, rules))
}

// age moves all times into the past, as if the clock had moved on.
func age(t testing.TB, db *sql.DB, by time.Duration) {
	t.Helper()
	us := by.Microseconds()
	testkit.Must(db.Exec(fmt.Sprintf(`UPDATE spillway_notices SET opened_at = opened_at - %d, leased_until = leased_until - %d, ends_at = CASE WHEN ends_at = %d THEN ends_at ELSE ends_at - %d END`,
		us, us, int64(math.MaxInt64), us)))
}

func (w world) report(l *Ledger, r Report) *Telling {
	w.Helper()
	return testkit.Must(l.Report(context.Background(), r))
}

func (w world) sweep(l *Ledger) []Telling {
	w.Helper()
	all, _, err := l.Sweep(context.Background())
	testkit.NoError(w, err)
	return all
}

func (w world) done(l *Ledger, t Telling) {
	w.Helper()
	testkit.NoError(w, l.Done(context.Background(), t))
}

// want checks what is told: the step, the count and the total.
func (w world) want(t *Telling, step Step, count, total int64) Telling {
	w.Helper()
	testkit.Require(w, t != nil && t.Step == step && t.Count == count && t.Total == total,
		"told %+v, want %s of %d, %d in all", t, step, count, total)
	return *t
}

func (w world) wantNone(all ...*Telling) {
	w.Helper()
	for _, t := range all {
		testkit.Require(w, t == nil, "told %+v, want nothing", t)
	}
}

// Feature O4: a cause is told once, its count after the window, and after a quiet one it is new again.
func TestWindow(t *testing.T) {
	each(t, func(w world) {
		a, b := w.open("a"), w.open("b")
		first := w.want(w.report(a, event("x", 2)), Began, 2, 2)
		testkit.Check(w, first.About == "about x" && first.First.Equal(at) && first.Last.Equal(at.Add(2*time.Second)), "%+v", first)
		w.wantNone(w.report(b, event("x", 5)), w.report(a, event("x", 1)))
		w.want(w.report(b, event("y", 1)), Began, 1, 1)
		w.done(a, first)
		testkit.Require(w, len(w.sweep(b)) == 0, "told within the window")
		w.advance(time.Hour + time.Second)
		due := w.sweep(b)
		i := slices.IndexFunc(due, func(t Telling) bool { return t.Subject == "x" })
		testkit.Require(w, i >= 0, "no summary among %+v", due)
		summary := w.want(&due[i], Counted, 6, 8)
		testkit.Require(w, len(w.sweep(a)) == 0, "told what another instance has")
		w.done(b, summary)
		w.wantNone(w.report(a, event("x", 3))) // it goes on
		w.advance(time.Hour + time.Second)
		for _, t := range w.sweep(a) {
			if t.Subject == "x" {
				w.done(a, w.want(&t, Counted, 3, 11))
			}
		}
		w.advance(time.Hour + time.Second) // quiet
		for _, t := range w.sweep(a) {
			testkit.Require(w, t.Subject != "x", "told %+v after a quiet window", t)
		}
		again := w.want(w.report(b, event("x", 1)), Began, 1, 1)
		testkit.Check(w, again.Opened != first.Opened, "the second episode has the identity of the first")
	})
}

// Feature O4: what an instance did not finish is told again after its lease, by one instance, once at most.
func TestLease(t *testing.T) {
	each(t, func(w world) {
		a, b, c := w.open("a"), w.open("b"), w.open("c")
		w.want(w.report(a, event("x", 1)), Began, 1, 1) // and a dies
		w.advance(20 * time.Second)
		testkit.Require(w, len(w.sweep(b)) == 0, "told under the lease of another")
		w.advance(11 * time.Second)
		due := w.sweep(b)
		testkit.Require(w, len(due) == 1, "told %+v", due)
		again := w.want(&due[0], Began, 1, 1)
		w.done(a, again) // a lives after all, and has no say
		testkit.Require(w, len(w.sweep(c)) == 0, "told by a third")
		w.advance(31 * time.Second) // b dies too
		due, lost, err := c.Sweep(context.Background())
		testkit.Require(w, err == nil && len(due) == 0 && lost == 1, "told %+v, lost %d: %v", due, lost, err)
		w.wantNone(w.report(c, event("x", 1))) // and is counted
	})
}

// Feature O4: a claim whose answer was lost is told when its lease is over, also if the instance lives on.
func TestLostAnswer(t *testing.T) {
	each(t, func(w world) {
		a := w.open("a")
		w.want(w.report(a, event("lost", 1)), Began, 1, 1)
		kept := w.want(w.report(a, event("kept", 1)), Began, 1, 1)
		for range 4 {
			w.advance(20 * time.Second)
			testkit.NoError(w, a.Renew(context.Background()))
			testkit.NoError(w, a.Renew(context.Background(), kept.Key, Key{"event", "gone"}))
		}
		due := w.sweep(a)
		testkit.Require(w, len(due) == 1 && due[0].Subject == "lost", "told %+v", due)
		w.want(&due[0], Began, 1, 1)
	})
}

// Feature O4: of many new causes within a minute a few are told, and the others are counted by one notice.
func TestMany(t *testing.T) {
	each(t, func(w world) {
		a := w.open("a")
		notified, many := 0, 0
		for i := range 200 {
			switch t := w.report(a, event(fmt.Sprint(i), 2)); {
			case t == nil:
			case t.Kind == "many":
				many++
				w.done(a, w.want(t, Began, 2, 2))
				testkit.Check(w, t.Subject == "event", "%+v", t)
			default:
				notified++
			}
		}
		w.wantNone(w.report(a, event("0", 1)))
		w.want(w.report(a, state("of another kind", 1)), Began, 1, 1)
		testkit.Check(w, notified == 3 && many == 1, "%d causes and %d notices of many were told", notified, many)
		w.advance(time.Hour + time.Second)
		for _, t := range w.sweep(a) {
			if t.Kind == "many" && t.Step == Counted {
				w.want(&t, Counted, 2*196, 2*197)
				many++
			}
		}
		testkit.Check(w, many == 2, "the count of the others was not told")
		w.want(w.report(a, event("after a while", 1)), Began, 1, 1)
	})
}

// Feature O4: a clock that goes back by a day lengthens no window and no lease by a day.
func TestClockGoesBack(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db := d.Open(t, address)
		w := world{t, func(holder string) *Ledger { return inTable(t, db, holder) }, func(by time.Duration) { age(t, db, by) }}
		a, b := w.open("a"), w.open("b")
		w.done(a, w.want(w.report(a, event("x", 1)), Began, 1, 1))
		w.wantNone(w.report(a, event("x", 1)))
		w.want(w.report(a, event("dead", 1)), Began, 1, 1)
		testkit.Returns(t, true)(a.Turn(t.Context(), "poll", time.Minute))
		w.advance(-24 * time.Hour)
		testkit.Returns(t, true)(b.Turn(t.Context(), "poll", time.Minute)) // not for a day after
		due := w.sweep(b)
		testkit.Require(t, len(due) == 1 && due[0].Subject == "dead", "told %+v", due)
		w.done(b, due[0])
		w.advance(time.Hour + time.Minute)
		due = w.sweep(b)
		testkit.Require(t, len(due) == 1 && due[0].Subject == "x", "told %+v", due)
		w.want(&due[0], Counted, 1, 2)
	})
}

// Feature O4: one instance at a time has its turn.
func TestTurn(t *testing.T) {
	each(t, func(w world) {
		a, b := w.open("a"), w.open("b")
		for range 3 {
			had := 0
			for _, l := range []*Ledger{a, b, a} {
				if testkit.Must(l.Turn(context.Background(), "poll", time.Minute)) {
					had++
				}
			}
			testkit.Require(w, had == 1, "%d had their turn", had)
			w.advance(61 * time.Second)
		}
	})
}

package sqlmarks

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/middleware/internal/deliveries"
)

// Feature D10: the contract of a store's processes, on each database.
func TestStore_processes(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		ctx := t.Context()
		s := testkit.Must(NewStore(ctx, d.Open(t, address), "shop"))
		for _, r := range []deliveries.Process{{ID: "a", Node: "node", Interval: time.Second}, {ID: "b", Interval: 2 * time.Second}} {
			testkit.NoError(t, s.Register(ctx, r))
		}
		if testkit.Must(s.Beat(ctx, "b")); s.Register(ctx, deliveries.Process{ID: "b", Interval: 2 * time.Second}) != nil || testkit.Must(s.Others(ctx, "a"))[0].Beats != 1 {
			t.Error("a process whose registration came through, and whose answer was lost, cannot register again")
		}
		another := testkit.Must(NewStore(ctx, d.Open(t, address), "Shop"))
		testkit.NoError(t, another.Register(ctx, deliveries.Process{ID: "c", Node: "n", Interval: time.Second}))
		if got := testkit.Must(s.Others(ctx, "a")); !slices.Equal(got, []deliveries.Process{{ID: "b", Beats: 1, Interval: 2 * time.Second}}) {
			t.Errorf("others of a are %+v", got)
		}
		if got := testkit.Must(another.Others(ctx, "")); len(got) != 1 || got[0].ID != "c" {
			t.Errorf("others of another service are %+v", got)
		}
		testkit.Check(t, testkit.Must(s.Beat(ctx, "b")) && !testkit.Must(s.Beat(ctx, "unknown")),
			"beat does not report what is there")
		of := deliveries.Key{ID: "of b, and of one that is gone"}
		for i, process := range []string{"b", "gone"} {
			testkit.Must(s.Enter(ctx, of, deliveries.Mark{Delivery: i + 1, Process: process}))
		}
		found := func(ended bool) {
			t.Helper()
			got := testkit.Must(s.Marks(ctx, of))
			testkit.Check(t, len(got) == 2 && got[0].Ended == ended && got[0].Beats == 2 && got[0].Interval == 2*time.Second &&
				got[1].Ended, "marks with their processes: %+v", got)
		}
		found(false)
		testkit.Check(t, !testkit.Must(s.Lose(ctx, "b", 1)), "a process that has beaten since was lost")
		testkit.Check(t, testkit.Must(s.Lose(ctx, "b", 2)) && !testkit.Must(s.Lose(ctx, "b", 2)),
			"of two that lose a process, not one did")
		got := testkit.Must(s.Others(ctx, "a"))
		testkit.Check(t, len(got) == 1 && got[0].Lost && got[0].Beats == 2 && got[0].LostFor <= time.Minute,
			"a lost process is %+v", got)
		found(true)
		testkit.Eventually(t, "the loss ages", func() bool { return testkit.Must(s.Others(ctx, "a"))[0].LostFor > 0 })
		testkit.Check(t, testkit.Must(s.Beat(ctx, "b")) && !testkit.Must(s.Others(ctx, "a"))[0].Lost,
			"one that beats again is still lost")
		if err := s.Forget(ctx, "b"); err != nil || len(testkit.Must(s.Others(ctx, "a"))) != 1 {
			t.Error("one that lives was forgotten", err)
		}
		testkit.Must(s.Lose(ctx, "b", 3))
		if err := s.Forget(ctx, "b"); err != nil || len(testkit.Must(s.Others(ctx, "a"))) != 0 {
			t.Error("one that is lost was not forgotten", err)
		}
		err := s.SignOff(ctx, "a")
		testkit.Check(t, err == nil && !testkit.Must(s.Beat(ctx, "a")), "one that signed off is there %v", err)
	})
}

// Feature D10: the contract of a store's marks, on each database, whatever bytes the keys hold. The settings of the
// connections do not matter.
func TestStore_marks(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db := d.Open(t, address)
		testStoreMarks(t, db)
		testSweep(t, db)
	})
	for _, settings := range []string{
		"clientFoundRows=true&interpolateParams=true&charset=latin1", "sql_mode=%27ANSI%27&tx_isolation=%27SERIALIZABLE%27",
	} {
		t.Run(settings, func(t *testing.T) {
			t.Parallel()
			testStoreMarks(t, mysqltest.Open(t, mysqltest.With(mysqltest.Database(t), settings)))
		})
	}
}

func testStoreMarks(t *testing.T, db *sql.DB) {
	ctx := t.Context()
	stores := map[string]crashlimit.Store{}
	for _, service := range []string{"shop", "Shop"} {
		s := testkit.Must(NewStore(ctx, db, service))
		stores[service] = s
	}
	s := stores["shop"]
	seen := map[deliveries.Key]bool{}
	for _, id := range []string{"id", "ID", "id ", "", "\x00", "\xff\xfe", "sha256:x", "'; DROP TABLE spillway_deliveries; --", strings.Repeat("x", 64<<10), strings.Repeat("x", 64<<10) + "y", "naïve 🙂"} {
		m := deliveries.Key{Consumer: s.Column(id), ID: s.Column(id)}
		again := m
		again.Redrives = -1 << 52 // of a release
		testkit.Check(t, !seen[m], "%.20q has the mark of another", id)
		seen[m] = true
		wants := func(service string, m deliveries.Key, want ...deliveries.Mark) {
			t.Helper()
			var got []deliveries.Mark
			for _, one := range testkit.Must(stores[service].Marks(ctx, m)) {
				got = append(got, one.Mark)
			}
			testkit.Check(t, slices.Equal(got, want), "%.20q: marks %v, want %v", id, got, want)
		}
		p1, p2, p3 := deliveries.Mark{Delivery: 1, Process: "p1"}, deliveries.Mark{Delivery: 2, Process: "p2"}, deliveries.Mark{Delivery: 3, Process: "p3"}
		for service, s := range stores {
			wants(service, m)
			testkit.Check(t, testkit.Must(s.Enter(ctx, m, p1)) && !testkit.Must(s.Enter(ctx, m, deliveries.Mark{Delivery: 1, Process: "p2"})),
				"%.20q: of two that are the first, not one is", id)
			if !testkit.Must(s.Enter(ctx, m, p2)) || !testkit.Must(s.Enter(ctx, m, p3)) || !testkit.Must(s.Enter(ctx, again, p1)) {
				t.Errorf("%.20q: a mark was not written", id)
			}
			wants(service, m, p1, p2, p3)
			wants(service, again, p1)
		}
		testkit.Is(t, s.Clear(ctx, m, deliveries.Mark{Process: "p3"}), nil)
		wants("shop", m, p1, p2)
		testkit.Is(t, s.Clear(ctx, m, deliveries.Mark{Delivery: 1}), nil)
		wants("shop", m, p2)
		testkit.Is(t, s.Leave(ctx, "p2"), nil)
		wants("shop", m)
		wants("shop", again, p1)
		wants("Shop", m, p1, p3)
		testkit.Is(t, stores["Shop"].Clear(ctx, m, deliveries.All), nil)
		wants("Shop", m)
		wants("Shop", again, p1)
	}
}

func testSweep(t *testing.T, db *sql.DB) {
	ctx, s := t.Context(), testkit.Must(NewStore(t.Context(), db, "shop"))
	young := deliveries.Key{ID: "young"}
	testkit.Check(t, testkit.Must(s.Enter(ctx, young, deliveries.Mark{Delivery: 1, Process: "p"})) && s.Sweep(ctx, time.Hour, time.Hour) == nil &&
		len(testkit.Must(s.Marks(ctx, young))) == 1, "a young mark was swept away")
	for i := range 10 {
		testkit.Must(s.Enter(ctx, deliveries.Key{Consumer: "c", ID: fmt.Sprint(i)}, deliveries.Mark{Delivery: 1, Process: "p"}))
	}
	placed := deliveries.Key{Consumer: "c", ID: "placed"}
	testkit.Must(s.Enter(ctx, placed, deliveries.Mark{Delivery: 1, Process: "p"}))
	testkit.Must(s.Enter(ctx, placed, deliveries.Mark{Process: "letter"}))
	testkit.NoError(t, s.Sweep(ctx, time.Hour, -time.Hour))
	testkit.Check(t, len(testkit.Must(s.Marks(ctx, placed))) == 0 && len(testkit.Must(s.Marks(ctx, young))) == 1,
		"not the marks of what has a letter went, or others did too")
	testkit.NoError(t, s.Sweep(ctx, -time.Hour, -time.Hour))
	var left int
	err := db.QueryRow(`SELECT count(*) FROM spillway_deliveries`).Scan(&left)
	testkit.Check(t, err == nil && left == 0, "%d marks are left: %v", left, err)
}

// Feature D10, promise P1: a store without a database, or on a server without a service, is an error that says what to
// do.
func TestStore_refuses(t *testing.T) {
	for _, d := range databases.All {
		_, err := NewStore(t.Context(), nil, "shop")
		testkit.Says(t, err, "the *sql.DB is nil")
		_, err = NewStore(t.Context(), d.Open(t, d.Create(t)), "")
		if d.Name == "sqlite" && err == nil {
			continue
		}
		testkit.Says(t, err, "the Service is empty")
	}
}

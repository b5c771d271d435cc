package letters_test

import (
	"context"
	rand2 "crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Decision 18: the numbers of causes are those of the letters, whatever several processes do at once.
func TestStore_numbers(t *testing.T) { onEach(t, testStore_numbers) }

func testStore_numbers(t *testing.T, on fixture.Database) {
	seeds := testkit.Random(t)
	open := on.Create(t)
	db := open()
	stores := []*letters.Store{storeOn(t, db), storeOn(t, open())}
	var actors sync.WaitGroup
	for i := range 4 {
		random := rand.New(rand.NewPCG(seeds.Uint64(), uint64(i)))
		actors.Go(func() {
			for range 40 {
				testkit.Is(t, actAtRandom(t.Context(), stores[i%2], random), nil)
			}
		})
	}
	actors.Wait()
	wantNumbers(t, db, stores[0])

	// The service is renamed by hand, as the package says.
	name := map[bool]string{false: `'eshop'`, true: `CAST('eshop' AS BLOB)`}[on.Name == sqliteFile.Name]
	mustExec(t, db, `UPDATE spillway_dead_letters SET service = `+name, `DELETE FROM spillway_letter_counts`)
	renamed := testkit.Must(letters.NewStore(t.Context(), db, letters.Config{Service: "eshop"}))
	wantNumbers(t, db, renamed)
}

// Decision 32: numbers that are wrong, because rows were deleted by hand or restored in part, heal: by a person's
// command, and by themselves within an hour. Traffic goes on meanwhile, and nothing is counted twice.
func TestStore_numbersHeal(t *testing.T) { onEach(t, testStore_numbersHeal) }

func testStore_numbersHeal(t *testing.T, on fixture.Database) {
	seeds := testkit.Random(t)
	open := on.Create(t)
	db := open()
	stores := []*letters.Store{storeOn(t, db), storeOn(t, open())}
	inside := hidden.Of(stores[0])
	busy := func() {
		var actors sync.WaitGroup
		for i := range 4 {
			random := rand.New(rand.NewPCG(seeds.Uint64(), uint64(i)))
			actors.Go(func() {
				for range 20 {
					testkit.Is(t, actAtRandom(t.Context(), stores[i%2], random), nil)
				}
			})
		}
		for i := range 8 { // all find the same
			actors.Go(func() {
				testkit.Is(t, testkit.Err(hidden.Of(stores[i%2]).Numbers(t.Context(), true)), nil)
			})
		}
		actors.Wait()
	}
	busy()
	wrong := testkit.Must(inside.Numbers(t.Context(), false))
	testkit.Check(t, len(wrong) == 0, "%+v is wrong of what no one touched", wrong)
	for name, by := range map[string][]string{
		"letters deleted":   {`DELETE FROM spillway_dead_letters WHERE seq % 3 = 0`},
		"numbers lost":      {`DELETE FROM spillway_letter_counts WHERE slot >= 0`},
		"causes lost":       {`DELETE FROM spillway_letter_causes`},
		"numbers of a dump": {`UPDATE spillway_letter_counts SET waiting = waiting + 7`},
	} {
		mustExec(t, db, append(by, `DELETE FROM spillway_letter_bodies WHERE body NOT IN (SELECT CASE WHEN moved_from > 0 THEN moved_from ELSE seq END FROM spillway_dead_letters)`)...)
		wrong = testkit.Must(inside.Numbers(t.Context(), false))
		testkit.Check(t, len(wrong) > 0, "%s: nothing is wrong", name)
		if name == "letters deleted" { // by itself, an hour later, in a process that looks
			mustExec(t, db, `UPDATE spillway_letter_counts SET minute = minute - 61 WHERE cause = '' AND slot = -1`)
			stores[0] = storeOn(t, open())
			inside = hidden.Of(stores[0])
		} else {
			busy()
		}
		wantNumbers(t, db, stores[0])
		totals := testkit.Must(inside.Totals(t.Context()))
		for status, n := range totals {
			testkit.Check(t, n == countOf(t, db, string(status)), "%s: %d %s letters, and %d are there", name, n, status, countOf(t, db, string(status)))
		}
		wrong = testkit.Must(inside.Numbers(t.Context(), false))
		testkit.Check(t, len(wrong) == 0, "%s: still wrong: %+v", name, wrong)
	}
}

// Decision 32: a role that sees a part of the letters, by row-level security, makes no numbers of that part.
func TestStore_numbersOfSomeRows(t *testing.T) {
	address := databases.Postgres.Create(t)
	owner := databases.Postgres.Open(t, address)
	store := storeOn(t, owner)
	publish(t, store, "orders.dlq", several(5)...)
	role := "spillway_test_" + strings.ToLower(rand2.Text()[:12])
	schema := textOf(t, owner, `SELECT quote_ident(current_schema())`)
	mustExec(t, owner, `CREATE ROLE `+role, `GRANT USAGE ON SCHEMA `+schema+` TO `+role,
		`GRANT ALL ON ALL TABLES IN SCHEMA `+schema+` TO `+role, `GRANT ALL ON ALL SEQUENCES IN SCHEMA `+schema+` TO `+role,
		`ALTER TABLE spillway_dead_letters ENABLE ROW LEVEL SECURITY`, `CREATE POLICY later ON spillway_dead_letters USING (seq > 3)`)
	t.Cleanup(func() { mustExec(t, owner, `DROP OWNED BY `+role, `DROP ROLE `+role) })
	db := databases.Postgres.Open(t, address)
	db.SetMaxOpenConns(1)
	mustExec(t, db, `SET ROLE `+role)
	some := storeOn(t, db)
	testkit.Says(t, testkit.Err(hidden.Of(some).Numbers(t.Context(), true)), "BYPASSRLS")
	testkit.Must(some.Groups(t.Context(), letters.Filter{}))
	testkit.Returns(t, 5)(store.Count(t.Context(), letters.Filter{}))
	wrong := testkit.Must(hidden.Of(store).Numbers(t.Context(), false))
	testkit.Check(t, len(wrong) == 0, "%+v", wrong)
}

func countOf(t testing.TB, db *sql.DB, status string) (n int) {
	t.Helper()
	testkit.NoError(t, db.QueryRow(`SELECT COUNT(*) FROM spillway_dead_letters WHERE status = '`+status+`'`).Scan(&n))
	return n
}

// actAtRandom does one thing to some of a few letters of a few causes.
func actAtRandom(ctx context.Context, store *letters.Store, random *rand.Rand) error {
	act := letters.Act{By: "model", Reason: "a test", RedriveID: "model"}
	any := letters.Filter{Statuses: letters.Statuses()}
	status := letters.Statuses()[random.IntN(len(letters.Statuses())-1)] // the last one is erased
	id := fmt.Sprint(random.IntN(60))
	switch random.IntN(11) {
	case 0, 1, 2, 3:
		return store.Publish("orders.dlq", letter(id, "{}", func(l *poison.Letter) {
			l.Failure.Description = []string{"disk full", "no such customer", "timeout", "refused"}[random.IntN(4)]
		}))
	case 4:
		return store.Publish("orders.dlq", fixture.OfTwo(1+random.IntN(6))...)
	case 5, 6:
		taken, err := fixture.Take(ctx, store, any, time.Minute, 1+random.IntN(5))
		if err == nil {
			_, err = fixture.MarkEach(ctx, store, status, act, taken...)
		}
		return err
	case 7:
		taken, err := fixture.Take(ctx, store, any, time.Minute, 2)
		for _, t := range taken {
			if err := fixture.Postpone(ctx, store, t); err != nil && !errors.Is(err, letters.ErrLeaseLost) {
				return err
			}
		}
		return err
	case 8:
		_, err := store.MarkAll(ctx, letters.Filter{Statuses: letters.Statuses(), IDs: []string{id, "id-1"}}, status, act)
		return err
	}
	if random.IntN(4) == 0 {
		_, err := hidden.Of(store).Erase(ctx, letters.Filter{IDs: []string{id, "id-3"}}, act, inside.EraseOptions{})
		return err
	}
	_, err := store.Purge(ctx, letters.Filter{Statuses: []letters.Status{status, letters.StatusErased}[:1+random.IntN(2)], IDs: []string{id, "id-2"}}, act)
	return err
}

// wantNumbers compares the numbers that the Store keeps with the letters that are there, and each letter has its body.
func wantNumbers(t testing.TB, db *sql.DB, store *letters.Store) {
	t.Helper()
	type key struct{ cause, status string }
	there := map[key]int{}
	err := database.Each(t.Context(), db, func(rows *sql.Rows) error {
		var k key
		var n int
		err := rows.Scan(&k.cause, &k.status, &n)
		there[k] = n
		return err
	}, `SELECT cause, status, COUNT(*) FROM spillway_dead_letters GROUP BY cause, status`)
	testkit.NoError(t, err)
	all, erased := 0, 0
	for _, status := range letters.Statuses() {
		groups := testkit.Must(store.Groups(t.Context(), letters.Filter{Statuses: []letters.Status{status}}))
		for _, g := range groups {
			all += g.Count
			if status == letters.StatusErased {
				erased += g.Count
			}
			k := key{g.Cause, string(status)}
			testkit.Check(t, there[k] == g.Count,
				"%d %s letters of %s are counted, %d are there", g.Count, status, g.Description, there[k])
			delete(there, k)
			if found := list(t, store, letters.Filter{Causes: []string{g.Cause}, Statuses: []letters.Status{status}, Limit: 1000}); len(found) != g.Count {
				t.Errorf("%d %s letters of %s are listed, %d are counted", len(found), status, g.Description, g.Count)
			}
		}
	}
	for k, n := range there {
		t.Errorf("%d %s letters of %s are there, and none counted", n, k.status, k.cause)
	}
	var bodies int
	err = db.QueryRow(`SELECT COUNT(*) FROM spillway_letter_bodies`).Scan(&bodies)
	testkit.Check(t, err == nil && bodies == all-erased,
		"%d letters that are not erased have %d bodies, %v", all-erased, bodies, err)
}

// Feature V9: the arrivals of a cause are known for each minute of the last hour, whatever process stored the letters.
func TestStore_arrivals(t *testing.T) { onEach(t, testStore_arrivals) }

func testStore_arrivals(t *testing.T, on fixture.Database) {
	open := on.Create(t)
	db := open()
	stores := []*letters.Store{storeOn(t, db), storeOn(t, open())}
	put := 0
	arrive := func(n int) {
		for range n {
			put++
			publish(t, stores[put%2], "orders.dlq", letter(fmt.Sprint(put), "a"))
		}
	}
	arrive(3)
	age(t, db, 5)
	arrive(5)
	publish(t, stores[0], "orders.dlq", letter("1", "a")) // again
	age(t, db, 40)
	arrive(2)
	groups, err := stores[0].Groups(t.Context(), letters.Filter{})
	testkit.Require(t, err == nil && len(groups) == 1 && groups[0].Arrived == 11, "%+v, %v", groups, err)
	cause := groups[0].Cause
	all := testkit.Must(hidden.Of(stores[0]).Arrivals(t.Context(), cause, "unknown"))
	testkit.Require(t, len(all) == 2 && all[0].Cause == cause && all[1].PerMinute == [60]int{}, "%+v", all)
	for minute, want := range map[int]int{14: 3, 19: 6, 59: 2} {
		got := 0
		for _, n := range all[0].PerMinute[minute-3 : minute+1] { // minutes may end during the test
			got += n
		}
		testkit.Check(t, got == want, "%d arrivals in minute %d, want %d: %v", got, minute, want, all[0].PerMinute)
	}
	age(t, db, 61)
	arrive(1)
	sum := 0
	if all, err = hidden.Of(stores[0]).Arrivals(t.Context(), cause); err == nil {
		for _, n := range all[0].PerMinute {
			sum += n
		}
	}
	testkit.Check(t, err == nil && sum == 1, "%+v, %v: what is older than an hour is no arrival of late", all, err)
}

// age makes all that was counted older, by some minutes.
func age(t testing.TB, db *sql.DB, minutes int) {
	t.Helper()
	var statements []string
	err := database.Each(t.Context(), db, func(rows *sql.Rows) error {
		var slot, minute int
		var recent, older string
		err := rows.Scan(&slot, &minute, &recent)
		for _, entry := range strings.Fields(recent) {
			var modulo, n int
			if _, err := fmt.Sscanf(entry, "%d:%d", &modulo, &n); err != nil {
				return err
			}
			older += fmt.Sprintf("%d:%d ", (modulo+1000-minutes)%1000, n)
		}
		statements = append(statements, fmt.Sprintf(`UPDATE spillway_letter_counts SET minute = %d, recent = '%s' WHERE slot = %d`, minute-minutes, older, slot))
		return err
	}, `SELECT slot, minute, recent FROM spillway_letter_counts WHERE minute > 0`)
	testkit.NoError(t, err)
	mustExec(t, db, statements...)
}

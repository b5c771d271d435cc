package letters_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/database"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

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
	all, err := stores[0].Inside().Arrivals(t.Context(), cause, "unknown")
	testkit.Require(t, err == nil && len(all) == 2 && all[0].Cause == cause && all[1].PerMinute == [60]int{},
		"%+v, %v", all, err)
	for minute, want := range map[int]int{14: 3, 19: 6, 59: 2} {
		got := 0
		for _, n := range all[0].PerMinute[minute-3 : minute+1] { // minutes may end during the test
			got += n
		}
		if got != want {
			t.Errorf("%d arrivals in minute %d, want %d: %v", got, minute, want, all[0].PerMinute)
		}
	}
	age(t, db, 61)
	arrive(1)
	sum := 0
	if all, err = stores[0].Inside().Arrivals(t.Context(), cause); err == nil {
		for _, n := range all[0].PerMinute {
			sum += n
		}
	}
	testkit.Check(t, err == nil && sum == 1, "%+v, %v: what is older than an hour is no arrival of late", all, err)
	testkit.Check(t, testkit.Err(stores[0].Inside().Arrivals(t.Context(), make([]string, letters.MaxListed+1)...)) != nil,
		"too many causes")
}

// age makes all that was counted older, by some minutes.
func age(t testing.TB, db *sql.DB, minutes int) {
	t.Helper()
	rows, err := db.Query(`SELECT slot, minute, recent FROM spillway_letter_counts WHERE minute > 0`)
	testkit.NoError(t, err)
	var statements []string
	err = database.Each(rows, func(rows *sql.Rows) error {
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
	})
	testkit.NoError(t, err)
	mustExec(t, db, statements...)
}

package sequence_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
)

// Feature R13, promise P7: an owner that looks at its source while a drain finds a lane empty stops neither. The lane is
// looked at again, because the look may have found more.
func TestLookDuringDrain(t *testing.T) {
	address := databases.Postgres.Create(t)
	db := databases.Postgres.Open(t, address)
	_, store := opened(t, db)
	key := []byte("order-7")
	testkit.NoError(t, store.Park(t.Context(), source, rowOf(key, 1, "a", ""), 0))
	o := (&sequence.Ordering{Store: store}).Own(source)
	testkit.Check(t, o.Load(t.Context()) && o.Waits(key), "the lane is not known")
	lane := o.Next(t.Context())
	databases.Exec(t, db, `DELETE FROM spillway_parked`) // by another one

	closed := testkit.Must(databases.Postgres.Open(t, address).Begin())
	testkit.Must(closed.Exec(`LOCK TABLE spillway_parked IN ACCESS EXCLUSIVE MODE`))
	waiting := func(n int) {
		t.Helper()
		testkit.Eventually(t, fmt.Sprint(n, " wait for the table"), func() bool {
			return databases.Text(t, db, `SELECT count(*) FROM pg_locks WHERE NOT granted
AND relation = 'spillway_parked'::regclass`) == fmt.Sprint(n)
		})
	}
	ended := make(chan string, 2)
	go func() {
		o.Drain(t.Context(), t.Context(), lane, func(*sequence.Row) (passed, again bool) { return true, false })
		ended <- "drain"
	}()
	waiting(1)
	go func() {
		o.Load(t.Context())
		ended <- "look"
	}()
	waiting(2)
	testkit.NoError(t, closed.Rollback())
	for range 2 {
		testkit.Receive(t, "the end of the drain, and of the look", ended)
	}
	testkit.Require(t, o.Waits(key), "the lane is forgotten, although the source was looked at meanwhile")
	again, _ := o.Due()
	testkit.Require(t, again == lane, "the lane is not looked at again")
	o.Drain(t.Context(), t.Context(), again, func(*sequence.Row) (passed, again bool) { return true, false })
	_, pause := o.Due()
	testkit.Check(t, !o.Waits(key) && pause > time.Minute, "an empty lane is known for ever")
}

package delayed

import (
	"database/sql"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// What waits for a relay for long leaves in the order in which it was due, in a batch and across them.
func TestDueOrder_overdue(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	onEach(t, func(t *testing.T, d testDatabase, address string) {
		const n = 200
		order := rand.New(rand.NewPCG(seed, 2)).Perm(n)
		s, out := d.newStore(t, address), &outbox{}
		fillEach(t, s, n, func(i int) (id int, after time.Duration) { return order[i], time.Duration(order[i]-n) * time.Minute })
		start(t, s, out, RelayConfig{Batch: 30})
		eventually(t, "all are published", func() bool { return len(out.all()) == n })
		if ids := out.ids(); !slices.IsSorted(ids) {
			t.Errorf("they left in the order %q", ids)
		}
	})
}

// fill puts n messages in one transaction.
func fill(t testing.TB, s *Store, n int, after time.Duration) {
	t.Helper()
	fillEach(t, s, n, func(i int) (int, time.Duration) { return i, after })
}

func fillEach(t testing.TB, s *Store, n int, each func(i int) (id int, after time.Duration)) {
	t.Helper()
	err := s.db.Write(t.Context(), func(tx *sql.Tx) error {
		for i := range n {
			id, after := each(i)
			if _, err := tx.Exec(s.statements.put, newRecord(s.service, "orders", newMessage(numberedID(id))).args(after)...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

package delayed

import (
	"database/sql"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

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
	testkit.NoError(t, err)
}

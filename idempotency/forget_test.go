package idempotency_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable/forget"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature D14: what a key keeps of a message is gone: its outputs and its fingerprint, or the key itself. A key that
// stays absorbs its message, a key that was removed does not. Keys of others, of other services and under a lease stay
// as they are.
func TestForget(t *testing.T) {
	onKinds(t, func(t *cell) {
		db, store := t.db, t.store(t.db)
		const n, person = 450, "ann.smith@example.com"
		enterKeys(t, db, "ann", n, time.Now(), "NULL")
		enterKeys(t, db, "other", 3, time.Now(), "NULL")
		enterKeys(t, db, "leased", 1, time.Now(), fmt.Sprint(time.Now().Add(time.Hour).UnixMilli()))
		for _, statement := range []string{
			`UPDATE spillway_keys SET outputs = '` + person + `', fingerprint = '` + person + `'`,
			`INSERT INTO spillway_keys (consumer, id, applied_at, outputs) VALUES ('shopping/billing', 'ann-7', 1, '` + person + `'), ('shop/mail', 'ann-7', 1, '` + person + `')`,
		} {
			testkit.Must(db.Exec(statement))
		}
		keys := []string{"leased-0", "not there"}
		for i := range n {
			keys = append(keys, fmt.Sprint("ann-", i))
		}
		says := func() (all int) {
			t.Helper()
			rows := testkit.Must(db.Query(`SELECT outputs FROM spillway_keys`))
			defer rows.Close()
			for rows.Next() {
				var outputs []byte
				testkit.NoError(t, rows.Scan(&outputs))
				if strings.Contains(string(outputs), person) {
					all++
				}
			}
			return all
		}
		kept := store.(keytable.Keeper).Keys()
		for _, step := range []struct {
			f                forget.Request
			keys, held, says int
		}{
			{forget.Request{Keys: keys, DryRun: true}, n + 1, 1, n + 6},
			{forget.Request{Keys: keys}, n + 1, 1, 5},
			{forget.Request{Keys: keys}, n + 1, 1, 5}, // once more is no harm
			{forget.Request{Keys: []string{"ann-8", "ann-8"}, Remove: true}, 1, 0, 5},
			{forget.Request{Keys: []string{"ann-8"}, Remove: true}, 0, 0, 5},
		} {
			keys, held, err := forget.Keys(t.Context(), kept, step.f)
			if err != nil || keys != step.keys || held != step.held || says() != step.says {
				t.Errorf("%d keys, %t, %t: %d, %d, %v, %d say something; want %d, %d, %d", len(step.f.Keys), step.f.DryRun, step.f.Remove, keys, held, err, says(), step.keys, step.held, step.says)
			}
		}
		enterKeys(t, db, "many", 2001, time.Now(), "NULL")
		for _, of := range []struct {
			except []string
			want   int
		}{{nil, 5 - 1}, {[]string{"leased-0", "not there"}, 3}} { // one of the five is of another service
			testkit.Returns(t, of.want)(forget.CountOutputs(t.Context(), kept, of.except))
		}
		receiver := newReceiver(t, store, idempotency.ReceiverConfig{Consumer: "billing"})
		handle := receiver.Middleware(t.write)
		for _, id := range []string{"ann-7", "ann-8"} { // the first is absorbed, the second is applied again
			testkit.Is(t, testkit.Err(handle(newMessage(id))), nil)
		}
		testkit.Equal(t, "applied", count(t, db, "effects"), 1)
	})
}

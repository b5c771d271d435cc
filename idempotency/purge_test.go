package idempotency_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// enterKeys writes n keys that were applied at a time, with ids that begin with name. expires is NULL or a time.
func enterKeys(t testing.TB, db *sql.DB, name string, n int, at time.Time, expires string) {
	t.Helper()
	const digits = `(SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)`
	number := `a.n + 10 * b.n + 100 * c.n + 1000 * d.n + 10000 * e.n`
	id := `'` + name + `-' || (` + number + `)`
	if strings.HasPrefix(fmt.Sprintf("%T", db.Driver()), "*mysql") {
		id = `CONCAT('` + name + `-', ` + number + `)`
	}
	if _, err := db.Exec(fmt.Sprintf(`INSERT INTO spillway_keys (consumer, id, applied_at, expires_at) SELECT 'shop/billing', %s, %d + %s, %s
FROM %s a, %s b, %s c, %s d, %s e WHERE %s < %d`, id, at.UnixMilli(), number, expires, digits, digits, digits, digits, digits, number, n)); err != nil {
		t.Fatal(err)
	}
}

func kept(t testing.TB, db *sql.DB) (ids []string) {
	t.Helper()
	rows := testkit.Must(db.Query(`SELECT id FROM spillway_keys ORDER BY id`))
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id string
		testkit.NoError(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	return ids
}

// Feature I8: the oldest keys go first and no more than asked for; young keys and held leases stay. Any bytes are a key
// that can be purged, of any consumer. On a server a key that a transaction is about to change is passed over, not
// waited for.
func TestPurge(t *testing.T) { onKinds(t, (*cell).purges) }

func (c *cell) purges() {
	db, store, now := c.db, c.store(c.db), time.Now()
	purged := func(before time.Time, limit, want int, stay ...string) {
		c.Helper()
		ctx, cancel := context.WithTimeout(c.Context(), deadline)
		defer cancel()
		testkit.Returns(c, want)(store.Purge(ctx, before, limit))
		testkit.Equal(c, "kept", fmt.Sprint(kept(c, db)), fmt.Sprint(stay))
	}
	day, old := now.Add(-24*time.Hour), now.Add(-48*time.Hour)
	enterKeys(c, db, "old", 5, old, "NULL")
	enterKeys(c, db, "live", 1, old, fmt.Sprint(now.Add(time.Hour).UnixMilli()))
	enterKeys(c, db, "over", 1, old, fmt.Sprint(now.Add(-time.Second).UnixMilli()))
	enterKeys(c, db, "released", 1, old, "0")
	enterKeys(c, db, "young", 1, now, "NULL")
	enterKeys(c, db, "edge", 1, day, "NULL")
	purged(day, 4, 4, "edge-0", "live-0", "old-2", "old-3", "old-4", "young-0")
	if c.says != "sqlite" { // which locks no rows
		tx := testkit.Must(db.Begin())
		testkit.Must(tx.Exec(`UPDATE spillway_keys SET fence = 1 WHERE consumer = 'shop/billing' AND id = 'old-3'`))
		purged(day, 4, 2, "edge-0", "live-0", "old-3", "young-0")
		testkit.NoError(c, tx.Rollback())
	}
	testkit.Must(store.Purge(c.Context(), day, 4))
	purged(day, 4, 0, "edge-0", "live-0", "young-0")
	c.exec(`DELETE FROM spillway_keys`)

	for _, key := range []idempotency.Key{
		{Consumer: "a", ID: "x"}, {Consumer: "A", ID: "x"}, {Consumer: "b ", ID: "x "},
		{Consumer: "ü", ID: "\xff\x00'\\"}, {Consumer: "b", ID: strings.Repeat("y", 4000)},
	} {
		testkit.NoError(c, testkit.Must(store.Claim(c.Context(), idempotency.Entry{Key: key})).Commit(nil))
	}
	enterKeys(c, db, "old", 2345, now.Add(-time.Hour), "NULL") // more than a statement can name
	purged(now.Add(time.Hour), 5000, 2350)
	testkit.Says(c, testkit.Err(store.Purge(c.Context(), day, 0)), "limit")
	testkit.Must(db.Exec(`DROP TABLE spillway_keys`))
	testkit.Says(c, testkit.Err(store.Purge(c.Context(), now, 1)), c.says+": purge keys: ")
}

// Feature I8: a claim of a key that is being purged waits or passes, and never fails; without the key it is the first.
func TestPurgeUnderClaims(t *testing.T) {
	onKinds(t, func(t *cell) {
		db, store := t.db, t.store(t.db)
		receiver := newReceiver(t, store, idempotency.ReceiverConfig{})
		ctx, cancel := context.WithCancel(t.Context())
		var purgers, claims sync.WaitGroup
		var purged, applied atomic.Int64
		for range 2 {
			purgers.Go(func() {
				for ctx.Err() == nil {
					n, err := store.Purge(t.Context(), time.Now().Add(time.Hour), 3)
					if err != nil {
						t.Error(err)
						return
					}
					purged.Add(int64(n))
				}
			})
		}
		for range 6 {
			claims.Go(func() {
				for range 40 {
					ran := false
					_, err := receiver.Middleware(func(msg *message.Message) ([]*message.Message, error) {
						ran = true
						return t.write(msg)
					})(newMessage(fmt.Sprint("m", rand.N(5))))
					if err != nil {
						t.Error(err)
						return
					}
					if ran {
						applied.Add(1)
					}
				}
			})
		}
		claims.Wait()
		eventually(t, "something is purged", func() bool { return purged.Load() > 0 })
		cancel()
		purgers.Wait()
		if int64(count(t, db, "effects")) != applied.Load() || applied.Load() != purged.Load()+int64(count(t, db, "spillway_keys")) {
			t.Errorf("%d effects, %d applied, %d purged, %d kept", count(t, db, "effects"), applied.Load(), purged.Load(), count(t, db, "spillway_keys"))
		}
	})
}

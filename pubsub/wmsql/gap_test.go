package wmsql_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// enter publishes in a transaction that is still open.
func (b *bench) enter(id string) *sql.Tx {
	b.Helper()
	tx := b.begin()
	testkit.Must(tx.Exec(`INSERT INTO ` + b.table(b.topic) + ` (uuid, payload, metadata` +
		b.sql(`, transaction_id`, ``) +
		`) VALUES ('` + id + `', '', '{}'` + b.sql(`, pg_current_xact_id()`, ``) + `)`))
	return tx
}

// A message whose publisher commits late is waited for, however much comes behind it meanwhile: none is passed over.
func TestLateCommit(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		ids := b.consume(func(c *wmsql.SubscriberConfig) { c.GapWait = 20 * time.Millisecond })
		b.publish("a")
		b.comes(ids, "a")
		late := b.enter("late")
		b.publish("b", "c", "d")
		b.still(ids, time.Second)
		testkit.NoError(t, late.Commit())
		b.comes(ids, "late", "b", "c", "d")
		b.still(ids, 50*time.Millisecond)
	})
}

// One whose publisher rolls back stays missing: those behind it come after GapWait.
func TestRolledBack(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		const wait = 300 * time.Millisecond
		ids := b.consume(func(c *wmsql.SubscriberConfig) { c.GapWait = wait })
		for _, id := range []string{"a", "b"} {
			gone := b.enter("gone")
			begun := time.Now() // the gap is seen when there is a row behind it, and not before
			b.publish(id)
			testkit.NoError(t, gone.Rollback())
			b.publish(id + "2")
			b.comes(ids, id)
			testkit.Check(t, b.isPostgres() || time.Since(begun) >= wait, "the gap was waited for only %s",
				time.Since(begun))
			b.comes(ids, id+"2")
		}
	})
}

// With auto_increment_increment above 1 there are gaps everywhere. All that are seen at once are waited for once.
func TestWideGaps(t *testing.T) {
	t.Parallel()
	d := databases.MariaDB
	b := newBench(t, d, mysqltest.With(d.Create(t), "auto_increment_increment=3&auto_increment_offset=2"))
	ids, begun := batchOf("m", 400), time.Now()
	b.publishAtOnce(ids...)
	got := b.consume(func(c *wmsql.SubscriberConfig) { c.GapWait = 2 * time.Second })
	b.comes(got, ids...)
	testkit.Check(t, time.Since(begun) < patience, "it took %s", time.Since(begun))
	b.exec("ALTER TABLE " + b.table(b.topic) + " AUTO_INCREMENT = 4000000000")
	b.publish("far")
	b.comes(got, "far")
}

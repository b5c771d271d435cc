package wmsql_test

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// consume acks whatever comes and tells when it came.
func (b *bench) consume(change ...func(*wmsql.SubscriberConfig)) <-chan string {
	b.Helper()
	messages := b.messages(b.subscriber(change...))
	ids := make(chan string, 1000)
	go func() {
		for msg := range messages {
			ids <- msg.UUID
			msg.Ack()
		}
	}()
	return ids
}

// comes takes ids in the order given, and nothing else.
func (b *bench) comes(from <-chan string, ids ...string) {
	b.Helper()
	for _, id := range ids {
		select {
		case got := <-from:
			if got != id {
				b.Fatalf("%s came, want %s", got, id)
			}
		case <-time.After(patience):
			b.Fatalf("%s did not come", id)
		}
	}
}

// still fails if anything comes for a time.
func (b *bench) still(from <-chan string, d time.Duration) {
	b.Helper()
	select {
	case id := <-from:
		b.Fatalf("%s came too early", id)
	case <-time.After(d):
	}
}

// enter publishes in a transaction that is still open.
func (b *bench) enter(id string) *sql.Tx {
	b.Helper()
	tx, err := b.db.Begin()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = tx.Rollback() })
	if _, err := tx.Exec(`INSERT INTO ` + b.table(b.topic) + ` (uuid, payload, metadata` + b.sql(`, transaction_id`, ``) + `) VALUES ('` + id + `', '', '{}'` +
		b.sql(`, pg_current_xact_id()`, ``) + `)`); err != nil {
		b.Fatal(err)
	}
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
		if err := late.Commit(); err != nil {
			t.Fatal(err)
		}
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
			if err := gone.Rollback(); err != nil {
				t.Fatal(err)
			}
			b.publish(id + "2")
			b.comes(ids, id)
			if d := time.Since(begun); !b.isPostgres() && d < wait {
				t.Errorf("the gap was waited for only %s", d)
			}
			b.comes(ids, id+"2")
		}
	})
}

// Numbers may have gaps everywhere, and be far apart.
func TestWideGaps(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		if b.isPostgres() {
			t.Skip("PostgreSQL's messages are in the order of transactions")
		}
		ids := b.consume(func(c *wmsql.SubscriberConfig) { c.GapWait = 20 * time.Millisecond })
		b.publish("a")
		b.exec("ALTER TABLE " + b.table(b.topic) + " AUTO_INCREMENT = 4000000000")
		b.publish("b")
		b.comes(ids, "a", "b")
		conn, err := b.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		var want []string
		for i := range 30 {
			query := `SET SESSION auto_increment_increment = 3`
			if i > 0 {
				want = append(want, fmt.Sprint(i))
				query = `INSERT INTO ` + b.table(b.topic) + ` (uuid, payload, metadata) VALUES ('` + fmt.Sprint(i) + `', '', '{}')`
			}
			if _, err := conn.ExecContext(t.Context(), query); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := conn.ExecContext(t.Context(), `SET SESSION auto_increment_increment = 1`); err != nil {
			t.Fatal(err)
		}
		b.comes(ids, want...)
	})
}

// A transaction that is open anywhere in PostgreSQL holds messages up, and loses none.
func TestLongTransaction(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		ids := b.consume()
		tx, err := b.db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		_, err = tx.Exec(`INSERT INTO effects VALUES ('long', 'x')`)
		b.publish("a", "b")
		if b.isPostgres() {
			b.still(ids, 300*time.Millisecond)
		} else {
			b.comes(ids, "a", "b")
		}
		if err := errors.Join(err, tx.Commit()); err != nil {
			t.Fatal(err)
		}
		if b.isPostgres() {
			b.comes(ids, "a", "b")
		}
	})
}

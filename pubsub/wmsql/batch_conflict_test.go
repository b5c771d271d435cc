package wmsql_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// conflicted delivers a message whose handler meets, twice, what no message is to blame for, and ignores that and goes
// on; then it fails for good, on its own account. Of the first two times nothing may be left and nothing may be
// counted.
func (b *bench) conflicted(meet func(*message.Message) error, code string, change ...func(*wmsql.SubscriberConfig)) {
	b.Helper()
	var seen, attempts deliveries
	ids := []string{"a", "b", "c"}
	b.publish(ids...)
	patient := func(c *wmsql.SubscriberConfig) { *wmsql.MaxDeliveries(c) = 1 }
	b.run(b.subscriber(append(change, oneBatch, patient)...), func(msg *message.Message) ([]*message.Message, error) {
		n := seen.add(msg.UUID)
		if msg.UUID != "b" {
			return b.whole(msg)
		}
		if n > 2 {
			return nil, errors.Join(b.write(msg, "half"), classify.Permanent(errors.New("at last")))
		}
		if err := b.write(msg, "half"); err != nil {
			return nil, err
		}
		testkit.Says(b, meet(msg), code)
		testkit.Is(b, b.write(msg, "after"), sql.ErrTxDone)
		after := message.NewMessageWithContext(msg.Context(), "", []byte("after"))
		testkit.Is(b, b.pub.Publish(b.outs, after), sql.ErrTxDone)
		if n == 1 {
			return nil, nil
		}
		return nil, classify.Permanent(errors.New("given up"))
	}, func(c *spillway.Config) {
		c.Retry.Hooks.OnAttempt = func(_ context.Context, a middleware.Attempt) {
			if a.Err != nil {
				attempts.add("failed")
			}
		}
	})
	b.account(ids, "b")
	got, failure := seen.get(), b.letters()["b"][0].Failure
	testkit.Check(b, (got["a"] == 3 || got["a"] == 2) && got["b"] == 3 && got["c"] == 1, "deliveries %v", got)
	testkit.Check(b, strings.Contains(failure.Description, "at last") && failure.Attempts == 1 &&
		attempts.get()["failed"] <= 2,
		"failure %+v, %v", failure, attempts.get())
}

// A deadlock ends the transaction. On MySQL what is said after it would commit by itself.
func TestBatchDeadlock(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.exec(`CREATE TABLE accounts (id INT PRIMARY KEY, n INT NOT NULL)`)
		b.exec(`INSERT INTO accounts VALUES (1, 0), (2, 0)`)
		b.conflicted(b.deadlock, b.sql("40P01", "1213"))
	})
}

// deadlock lets msg's handler be the victim of a deadlock: on PostgreSQL who looks first, on MySQL who wrote less.
func (b *bench) deadlock(msg *message.Message) error {
	tx := txOf(msg.Context())
	other, err := b.db.Begin()
	if err != nil {
		return err
	}
	var pid int
	if b.isPostgres() {
		_, err = tx.Exec(`SET LOCAL deadlock_timeout = '20ms'`)
		err = errors.Join(err, other.QueryRow(`SELECT pg_backend_pid()`).Scan(&pid))
		_, also := other.Exec(`SET LOCAL deadlock_timeout = '10s'`)
		err = errors.Join(err, also)
	} else {
		for range 30 {
			err = errors.Join(err, insert(other, "heavy", "x"))
		}
	}
	_, theirs := other.Exec(`UPDATE accounts SET n = 1 WHERE id = 2`)
	_, ours := tx.Exec(`UPDATE accounts SET n = 1 WHERE id = 1`)
	if err := errors.Join(err, theirs, ours); err != nil {
		return errors.Join(err, other.Rollback())
	}
	ended := make(chan error, 1)
	go func() {
		_, err := other.Exec(`UPDATE accounts SET n = 1 WHERE id = 1`)
		ended <- errors.Join(err, other.Rollback())
	}()
	// On PostgreSQL the one that waits looks once. On MySQL both look, and the lighter one goes.
	b.until("the other one waits", func() bool {
		const waits = `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid = $1`
		return !b.isPostgres() || b.ask(waits, pid) > 0
	})
	_, err = tx.Exec(`UPDATE accounts SET n = 1 WHERE id = 2`)
	testkit.Is(b, <-ended, nil)
	return err
}

// So does a lock that was waited for too long, where MySQL itself would undo the statement alone.
func TestBatchLockTimeout(t *testing.T) {
	b := on(t, databases.MariaDB)
	b.exec(`CREATE TABLE accounts (id INT PRIMARY KEY, n INT NOT NULL)`)
	b.exec(`INSERT INTO accounts VALUES (1, 0)`)
	b.conflicted(func(msg *message.Message) error {
		other := testkit.Must(b.db.Begin())
		defer func() { _ = other.Rollback() }()
		_, theirs := other.Exec(`UPDATE accounts SET n = 1`)
		_, also := txOf(msg.Context()).Exec(`SET SESSION innodb_lock_wait_timeout = 1`)
		_, err := txOf(msg.Context()).Exec(`UPDATE accounts SET n = 2`)
		return errors.Join(theirs, also, err)
	}, "1205")
}

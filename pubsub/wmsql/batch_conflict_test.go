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
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// conflicted delivers a message whose handler meets, twice, what no message is to blame for, and ignores that and goes
// on; then it fails for good, on its own account. Of the first two times nothing may be left and nothing may be
// counted.
func (b *bench) conflicted(meet func(*message.Message) error, code string) {
	b.Helper()
	var seen deliveries
	var attempts deliveries
	ids := []string{"a", "b", "c"}
	b.publish(ids...)
	b.run(b.subscriber(oneBatch, func(c *wmsql.SubscriberConfig) { *wmsql.MaxDeliveries(c) = 1 }), func(msg *message.Message) ([]*message.Message, error) {
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
		if err := meet(msg); err == nil || !strings.Contains(err.Error(), code) {
			b.Errorf("met %v, want %s", err, code)
		}
		for _, err := range []error{b.write(msg, "after"), b.pub.Publish(b.outs, message.NewMessageWithContext(msg.Context(), "", []byte("after")))} {
			if !errors.Is(err, sql.ErrTxDone) {
				b.Errorf("after it: %v", err)
			}
		}
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
	if got := seen.get(); got["a"] != 3 && got["a"] != 2 || got["b"] != 3 || got["c"] != 1 {
		b.Errorf("deliveries %v", got)
	}
	failure := b.letters()["b"][0].Failure
	if !strings.Contains(failure.Description, "at last") || failure.Attempts != 1 || attempts.get()["failed"] > 2 {
		b.Errorf("failure %+v, %v", failure, attempts.get())
	}
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
	b.until("the other one waits", func() (waits bool) {
		return !b.isPostgres() || b.db.QueryRow(`SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $1`, pid).Scan(&waits) == nil && waits
	})
	_, err = tx.Exec(`UPDATE accounts SET n = 1 WHERE id = 2`)
	if other := <-ended; other != nil {
		b.Errorf("the other one: %v", other)
	}
	return err
}

// So does a serialization failure, and a lock that was waited for too long.
func TestBatchConflict(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		if b.isPostgres() {
			b.conflicted(func(msg *message.Message) error {
				_, err := txOf(msg.Context()).Exec(`DO $$ BEGIN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END $$`)
				return err
			}, "40001")
			return
		}
		b.exec(`CREATE TABLE accounts (id INT PRIMARY KEY, n INT NOT NULL)`)
		b.exec(`INSERT INTO accounts VALUES (1, 0)`)
		b.conflicted(func(msg *message.Message) error {
			other, err := b.db.Begin()
			if err != nil {
				return err
			}
			defer func() { _ = other.Rollback() }()
			_, err = other.Exec(`UPDATE accounts SET n = 1`)
			_, also := txOf(msg.Context()).Exec(`SET SESSION innodb_lock_wait_timeout = 1`)
			if err := errors.Join(err, also); err != nil {
				return err
			}
			_, err = txOf(msg.Context()).Exec(`UPDATE accounts SET n = 2`)
			return err
		}, "1205")
	})
}

package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Promises P1, P7: a handler that leaves while a goroutine of its own is in the first statement leaves no transaction
// in the pool, and no key locked.
func TestLeftInStatement(t *testing.T) {
	boom := errors.New("boom")
	for name, leave := range map[string]func(*message.Message) error{
		"error": func(*message.Message) error { return boom },
		"nack":  func(msg *message.Message) error { msg.Nack(); return nil },
		"panic": func(*message.Message) error { panic(boom) },
	} {
		t.Run(name, func(t *testing.T) {
			db, _ := open(t, "")
			db.SetMaxOpenConns(3)
			r := receiver(t, pipelining(t, db), idempotency.ReceiverConfig{})
			var stray sync.WaitGroup
			func() {
				defer func() { _ = recover() }()
				_, _ = r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
					tx, on := idempotency.Tx(msg.Context()), make(chan struct{})
					stray.Go(func() {
						close(on)
						_, _ = tx.Exec(`INSERT INTO effects SELECT $1::text FROM pg_sleep(0.1)`, "stray")
					})
					<-on
					time.Sleep(20 * time.Millisecond) // it may be too late: then there is nothing to see
					return nil, leave(msg)
				})(newMessage("m"))
			}()
			stray.Wait()
			if open := rows(t, db, `pg_stat_activity WHERE state LIKE 'idle in transaction%' AND query LIKE '%effects%' AND query LIKE '%pg_sleep(0.1)%'`); open != 0 || db.Stats().InUse != 0 {
				t.Errorf("%d transactions are open, %d connections in use", open, db.Stats().InUse)
			}
			testkit.Must(r.Middleware(write)(newMessage("m")))
			wants(t, db, 1, 1)
		})
	}
}

// Promise P7: whatever the handler of a duplicate does and returns, the message is absorbed, with what was recorded;
// and what the first statement locked is free as soon as it has returned.
func TestDuplicates(t *testing.T) {
	applied := func(t *testing.T, err error) {
		t.Helper()
		testkit.Check(t, errors.Is(err, idempotency.ErrApplied), "%v, want ErrApplied", err)
	}
	db, _ := open(t, "")
	db.SetMaxOpenConns(2)
	r := receiver(t, pipelining(t, db), idempotency.ReceiverConfig{})
	for name, handle := range map[string]func(*testing.T, *sql.DB, *sql.Tx) error{
		"returns it": func(_ *testing.T, _ *sql.DB, tx *sql.Tx) error { _, err := tx.Exec(effect, "x"); return err },
		"ignores it": func(t *testing.T, _ *sql.DB, tx *sql.Tx) error {
			for range 3 {
				_, err := tx.Exec(effect, "x")
				applied(t, err)
			}
			applied(t, tx.QueryRow(`SELECT 1`).Scan(new(int)))
			_, err := tx.Prepare(`SELECT 1`)
			applied(t, err)
			return nil
		},
		"prepares": func(t *testing.T, _ *sql.DB, tx *sql.Tx) error {
			_, err := tx.Prepare(effect)
			applied(t, err)
			return err
		},
		"fails before": func(*testing.T, *sql.DB, *sql.Tx) error { return errors.New("own") },
		"says nothing": func(*testing.T, *sql.DB, *sql.Tx) error { return nil },
		"ends it":      func(_ *testing.T, _ *sql.DB, tx *sql.Tx) error { return tx.Commit() },
		"cannot be encoded": func(t *testing.T, _ *sql.DB, tx *sql.Tx) error {
			_, err := tx.Exec(effect, struct{}{})
			applied(t, err)
			return err
		},
		"is cut off": func(t *testing.T, _ *sql.DB, tx *sql.Tx) error {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := tx.ExecContext(ctx, `INSERT INTO effects SELECT $1::text FROM pg_sleep(30)`, "x")
			return err
		},
		"writes past it": func(t *testing.T, db *sql.DB, tx *sql.Tx) error {
			_, err := tx.Exec(`UPDATE effects SET id = id WHERE id = $1`, "first")
			applied(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err = db.ExecContext(ctx, `UPDATE effects SET id = id WHERE id = 'first'`)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Must(db.Exec(`TRUNCATE effects, spillway_keys`))
			first := testkit.Must(r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
				_, err := idempotency.Tx(msg.Context()).Exec(effect, "first")
				return []*message.Message{newMessage("")}, err
			})(newMessage("m")))
			for range 2 { // the first time the key is taken for a new one
				out, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
					return nil, handle(t, db, idempotency.Tx(msg.Context()))
				})(newMessage("m"))
				testkit.Check(t, err == nil && len(out) == 1 && out[0].UUID == first[0].UUID, "%v, %v", out, err)
			}
			wants(t, db, 1, 1)
		})
	}
}

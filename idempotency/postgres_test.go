package idempotency_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

const deadline = testkit.Patience

var eventually = testkit.Eventually

// process is the server's process of a transaction.
func process(t *testing.T, tx *sql.Tx) (id int) {
	t.Helper()
	if err := tx.QueryRow(`SELECT pg_backend_pid()`).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// waiting is how many statements wait for the transaction of a process.
func waiting(t *testing.T, db *sql.DB, id int) (n int) {
	t.Helper()
	if err := db.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))`, id).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Features I1, I2, promise P7, decision 8: deliveries of one key at once, to two processes, make one effect.
func TestPostgresConcurrentDuplicates(t *testing.T) {
	address := postgrestest.Schema(t)
	var handlers []message.HandlerFunc
	var duplicates atomic.Int64
	var db *sql.DB
	for range 2 {
		db = postgrestest.Open(t, address)
		if _, err := db.Exec(`CREATE TABLE IF NOT EXISTS effects (id text NOT NULL)`); err != nil {
			t.Fatal(err)
		}
		handlers = append(handlers, newReceiver(t, storeOn(db), idempotency.ReceiverConfig{
			OnDuplicate: func(context.Context, idempotency.Key) { duplicates.Add(1) },
		}).Middleware(effect))
	}
	atOnce(t, 200, func(i int) error { _, err := handlers[i%2](newMessage("same")); return err })
	wantRows(t, db, 1, 1)
	if duplicates.Load() != 199 {
		t.Fatalf("got %d duplicates, want 199", duplicates.Load())
	}
	atOnce(t, 200, func(i int) error { _, err := handlers[i%2](newMessage(fmt.Sprint(i / 2))); return err })
	wantRows(t, db, 101, 101)
}

// Feature I2: handlers of different keys run at the same time, also where the database asks for REPEATABLE READ, and a
// duplicate that waited there finds the key.
func TestPostgresIsolation(t *testing.T) {
	db := postgrestest.Open(t, postgrestest.Schema(t)+"&default_transaction_isolation=repeatable%20read")
	store := storeOn(db)
	first, err := store.Claim(t.Context(), idempotency.Entry{Key: idempotency.Key{Consumer: "c", ID: "1"}})
	if err != nil {
		t.Fatal(err)
	}
	second, err := store.Claim(t.Context(), idempotency.Entry{Key: idempotency.Key{Consumer: "c", ID: "2"}}) // does not wait
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Commit(nil); err != nil {
		t.Fatal(err)
	}
	holder := process(t, first.Tx())
	found := inBackground(func() bool {
		c, err := store.Claim(context.Background(), idempotency.Entry{Key: idempotency.Key{Consumer: "c", ID: "1"}})
		if err != nil {
			t.Error(err)
			return false
		}
		outputs, done := recorded(c)
		return done && string(outputs) == "x" && c.Release() == nil
	})
	eventually(t, "the duplicate waits", func() bool { return waiting(t, db, holder) == 1 })
	if err := first.Commit([]byte("x")); err != nil {
		t.Error(err)
	}
	if !<-found {
		t.Error("the duplicate did not find the key")
	}
}

// Promises P3, P4: the wait for another's key ends with the context, in the server too, and leaves nothing behind.
func TestPostgresWaitEndsWithContext(t *testing.T) {
	db := openPostgres(t)
	store := storeOn(db)
	key := idempotency.Key{Consumer: "c", ID: "1"}
	holder, err := store.Claim(t.Context(), idempotency.Entry{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	id := process(t, holder.Tx())
	for want, ending := range map[error]func() (context.Context, func()){
		context.Canceled:         func() (context.Context, func()) { return context.WithCancel(context.Background()) },
		context.DeadlineExceeded: func() (context.Context, func()) { return testkit.Expiring(context.Background()) },
	} {
		ctx, end := ending()
		failed := make(chan error)
		go func() {
			_, err := store.Claim(ctx, idempotency.Entry{Key: key})
			failed <- err
		}()
		eventually(t, "the duplicate waits", func() bool { return waiting(t, db, id) == 1 })
		end()
		if err := <-failed; !errors.Is(err, want) {
			t.Error(err)
		}
		eventually(t, "the server's wait ends", func() bool { return waiting(t, db, id) == 0 })
	}
	if n := db.Stats().InUse; n != 1 {
		t.Errorf("%d connections are in use", n)
	}
	if err := holder.Commit(nil); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := store.Claim(ended, idempotency.Entry{Key: key}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Promises P1, P7: a handler that goes on after a failed statement, and returns no error, has not succeeded: PostgreSQL
// answers its COMMIT with a rollback.
func TestPostgresAbortedTransaction(t *testing.T) {
	for name, outputs := range map[string][]*message.Message{"without outputs": nil, "with outputs": {message.NewMessage("", nil)}} {
		db := openPostgres(t)
		receiver := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{})
		out, err := receiver.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			if _, err := effect(msg); err != nil {
				return nil, err
			}
			if _, err := idempotency.Tx(msg.Context()).Exec(`SELECT 1/0`); err == nil {
				t.Error("the statement did not fail")
			}
			return outputs, nil
		})(newMessage("m1"))
		if out != nil || err == nil || !strings.Contains(err.Error(), "return the error of a failed statement") || errors.Is(err, sql.ErrTxDone) {
			t.Errorf("%s: %v, %v", name, out, err)
		}
		wantRows(t, db, 0, 0)
		if _, err := receiver.Middleware(effect)(newMessage("m1")); err != nil {
			t.Fatal(err)
		}
		wantRows(t, db, 1, 1)
	}
}

// Feature I2: a commit that the database refuses is an error with its cause, and nothing stays.
func TestPostgresCommitRefused(t *testing.T) {
	db := openPostgres(t)
	if _, err := db.Exec(`ALTER TABLE effects ADD UNIQUE (id) DEFERRABLE INITIALLY DEFERRED; INSERT INTO effects VALUES ('m1')`); err != nil {
		t.Fatal(err)
	}
	h := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{}).Middleware(effect)
	_, err := h(newMessage("m1"))
	var state interface{ SQLState() string }
	if !errors.As(err, &state) || state.SQLState() != "23505" || strings.Contains(err.Error(), "perhaps") {
		t.Fatal(err)
	}
	wantRows(t, db, 1, 0)
}

// Promises P1, P7: a connection that is lost while the handler runs, or before the commit, leaves nothing behind; the
// error is no success, and the next delivery is applied.
func TestPostgresConnectionLost(t *testing.T) {
	for _, c := range []struct {
		name    string
		outputs []*message.Message
		goesOn  bool // the handler writes after the connection is lost
		err     error
	}{
		{"in the handler", nil, true, nil},
		{"before the commit", nil, false, nil},
		{"before the commit, with outputs", []*message.Message{message.NewMessage("", nil)}, false, nil},
		{"before the rollback", nil, false, classify.Permanent(errors.New("boom"))}, // another one is given back: see P1-down-commit
	} {
		t.Run(c.name, func(t *testing.T) {
			db := openPostgres(t)
			r := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{})
			out, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
				if _, err := effect(msg); err != nil {
					return nil, err
				}
				postgrestest.Kill(t, db, process(t, idempotency.Tx(msg.Context())))
				if c.goesOn {
					return effect(msg)
				}
				return c.outputs, c.err
			})(newMessage("m1"))
			if out != nil || err == nil || errors.Is(err, sql.ErrTxDone) || c.err != nil && err != c.err {
				t.Fatal(out, err)
			}
			wantRows(t, db, 0, 0)
			if _, err := r.Middleware(effect)(newMessage("m1")); err != nil {
				t.Fatal(err)
			}
			wantRows(t, db, 1, 1)
			if n := db.Stats().InUse; n != 0 {
				t.Errorf("%d connections are in use", n)
			}
		})
	}
}

// Promise P7: a handler that ends the transaction, by its methods or in SQL, is told so, and set aside where something
// stayed or where it said that it had succeeded. What it ends by the methods leaves nothing. The connection is as good as
// new for those behind it.
func TestPostgresHandlerEndsTransaction(t *testing.T) {
	inSQL := func(statements ...string) func(*sql.Tx) error {
		return func(tx *sql.Tx) (err error) {
			for _, statement := range statements {
				_, failed := tx.Exec(statement)
				err = errors.Join(err, failed)
			}
			return err
		}
	}
	commit := func(tx *sql.Tx) error {
		if err := tx.Commit(); class(err) != classify.ClassPermanent || !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("the handler's commit: %v", err)
		}
		return nil // as of a handler that does not look
	}
	cause := classify.Transient(errors.New("boom"))
	for _, c := range []struct {
		name   string
		end    func(*sql.Tx) error
		result error
		rows   int
		class  classify.Class
	}{
		{"Commit, success", commit, nil, 0, classify.ClassPermanent},
		{"Rollback, success", (*sql.Tx).Rollback, nil, 0, classify.ClassPermanent},
		{"Commit, failure", commit, cause, 0, classify.ClassTransient},
		{"COMMIT and another, success", inSQL(`COMMIT`, `BEGIN`), nil, 1, classify.ClassPermanent},
		{"COMMIT and another, failure", inSQL(`COMMIT`, `BEGIN`), cause, 1, classify.ClassPermanent},
		{"ROLLBACK and another, success", inSQL(`ROLLBACK`, `BEGIN`, `INSERT INTO effects VALUES ('more')`), nil, 0, classify.ClassPermanent},
		{"ROLLBACK and another at once, success", inSQL(`ROLLBACK AND CHAIN`), nil, 0, classify.ClassPermanent},
		{"hidden", inSQL(`SELECT 1; ROLLBACK AND CHAIN`), nil, 0, classify.ClassPermanent},
		{"behind a comment", inSQL(`/* SELECT */ ROLLBACK AND CHAIN`), nil, 0, classify.ClassPermanent},
		{"Rollback, failure", (*sql.Tx).Rollback, cause, 0, classify.ClassTransient},
		{"COMMIT, success", inSQL(`COMMIT`), nil, 1, classify.ClassPermanent},
		{"ROLLBACK, success", inSQL(`ROLLBACK`), nil, 0, classify.ClassPermanent},
		{"COMMIT, failure", inSQL(`COMMIT`), cause, 1, classify.ClassPermanent},
		{"ROLLBACK, failure", inSQL(`ROLLBACK`), cause, 0, classify.ClassTransient},
	} {
		for _, outputs := range [][]*message.Message{nil, {newMessage("out")}} {
			t.Run(fmt.Sprintf("%s, %d outputs", c.name, len(outputs)), func(t *testing.T) {
				db := openPostgres(t)
				db.SetMaxOpenConns(1)
				r := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{})
				out, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
					if _, err := effect(msg); err != nil {
						return nil, err
					}
					if err := c.end(idempotency.Tx(msg.Context())); err != nil {
						return nil, err
					}
					return outputs, c.result
				})(newMessage("m1"))
				if out != nil || class(err) != c.class || errors.Is(err, sql.ErrTxDone) != (c.class == classify.ClassPermanent) {
					t.Fatal(out, err)
				}
				if c.result != nil && !errors.Is(err, c.result) {
					t.Fatal(err)
				}
				wantRows(t, db, c.rows, c.rows)
				if _, err := r.Middleware(effect)(newMessage("m2")); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// Promise P7: what a duplicate committed meanwhile is not mistaken for a commit by the handler that rolled back.
func TestPostgresRollbackThenDuplicate(t *testing.T) {
	db := openPostgres(t)
	store := storeOn(db)
	c, err := store.Claim(t.Context(), idempotency.Entry{Key: idempotency.Key{Consumer: "c", ID: "same"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Tx().Exec(`ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	if first, err := claimOnce(store, same); err != nil || !first {
		t.Fatal(first, err)
	}
	if err := c.Release(); err != nil {
		t.Error(err)
	}
}

// Promise P7: a handler that removes the key, or leaves rows open, is not applied, and spoils nothing for the next.
func TestPostgresHandlerSpoilsTransaction(t *testing.T) {
	for name, spoil := range map[string]func(*sql.Tx) error{
		"key gone":  func(tx *sql.Tx) error { _, err := tx.Exec(`DELETE FROM spillway_keys`); return err },
		"open rows": func(tx *sql.Tx) error { _, err := tx.Query(`SELECT generate_series(1, 100000)`); return err },
	} {
		t.Run(name, func(t *testing.T) {
			db := openPostgres(t)
			db.SetMaxOpenConns(1)
			r := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{})
			_, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
				return []*message.Message{newMessage("out")}, spoil(idempotency.Tx(msg.Context()))
			})(newMessage("m1"))
			if err == nil || errors.Is(err, sql.ErrTxDone) {
				t.Fatal(err)
			}
			if _, err := r.Middleware(effect)(newMessage("m2")); err != nil {
				t.Fatal(err)
			}
			wantRows(t, db, 1, 1)
		})
	}
}

// Feature I1: the same middleware attached twice passes through; another key on the same store is an error.
func TestPostgresNested(t *testing.T) {
	db := openPostgres(t)
	r := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{})
	twin := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{})
	if _, err := r.Middleware(twin.Middleware(effect))(newMessage("m1")); err != nil {
		t.Fatal(err)
	}
	wantRows(t, db, 1, 1)
	other := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{Consumer: "shipping"})
	if _, err := r.Middleware(other.Middleware(effect))(newMessage("m2")); class(err) != classify.ClassPermanent || !strings.Contains(err.Error(), "inside a claim") {
		t.Fatal(err)
	}
	wantRows(t, db, 1, 1)
}

// Decision 8: a claim keeps other writers out of its database only where it holds the pool's one connection.
func TestPostgresLocks(t *testing.T) {
	db, another := openPostgres(t), openPostgres(t)
	r := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{})
	for most, want := range map[int]bool{0: false, 1: true, 2: false} {
		db.SetMaxOpenConns(most)
		_, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			claim := chain.ClaimOf(msg.Context())
			if claim.Locks(db) != want || claim.Locks(another) {
				t.Errorf("with %d connections: %v, %v", most, claim.Locks(db), claim.Locks(another))
			}
			return nil, nil
		})(newMessage(fmt.Sprint(most)))
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Promise P4: a claim that waits for a connection of a pool that is used up ends with its context.
func TestPostgresPoolUsedUp(t *testing.T) {
	db := openPostgres(t)
	db.SetMaxOpenConns(1)
	store := storeOn(db)
	c, err := store.Claim(t.Context(), idempotency.Entry{Key: idempotency.Key{Consumer: "c", ID: "1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Release() }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := store.Claim(ctx, idempotency.Entry{Key: idempotency.Key{Consumer: "c", ID: "2"}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

package idempotency_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
)

// Features I1, I2, promise P7: effect and key commit together, a second delivery runs nothing.
func TestEffectAndKeyCommitTogether(t *testing.T) {
	db := openWithEffects(t)
	var applied, duplicate []idempotency.Key
	r := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{
		OnApplied:   func(_ context.Context, k idempotency.Key) { applied = append(applied, k) },
		OnDuplicate: func(_ context.Context, k idempotency.Key) { duplicate = append(duplicate, k) },
	})
	h := r.Middleware(effect)
	for range 3 {
		msg := newMessage("m1")
		out, err := h(msg)
		if err != nil || out != nil {
			t.Fatal(out, err)
		}
		if idempotency.Tx(msg.Context()) != nil {
			t.Fatal("the message still carries the transaction")
		}
		wantRows(t, db, 1, 1)
	}
	want := idempotency.Key{Consumer: "shop/billing", ID: "m1"}
	if len(applied) != 1 || applied[0] != want || len(duplicate) != 2 || duplicate[1] != want {
		t.Fatalf("hooks: applied %v, duplicate %v", applied, duplicate)
	}
}

// Features I2, I9, promises P1, P7: an attempt that fails in any way leaves nothing behind and frees the gate, so that the
// next one applies the message.
func TestFailureLeavesNothing(t *testing.T) {
	cause := errors.New("boom")
	for name, fail := range map[string]func() error{
		"error":  func() error { return cause },
		"panic":  func() error { panic(cause) },
		"goexit": func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			db := openWithEffects(t)
			db.SetMaxOpenConns(1) // a connection that is kept would be missed
			r := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{})
			h := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
				if _, err := effect(msg); err != nil {
					return nil, err
				}
				return []*message.Message{newMessage("out")}, fail()
			})
			msg := newMessage("m1")
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				defer func() { _ = recover() }()
				if out, err := h(msg); err != cause || out != nil {
					t.Errorf("got %v, %v; want the error unchanged and no outputs", out, err)
				}
			}()
			<-ended
			wantRows(t, db, 0, 0)
			if idempotency.Tx(msg.Context()) != nil {
				t.Fatal("the message still carries the transaction")
			}
			if _, err := r.Middleware(effect)(newMessage("m1")); err != nil {
				t.Fatal(err)
			}
			wantRows(t, db, 1, 1)
		})
	}
}

// Features I1, I2, promise P7, decision 8: 500 deliveries of one key at once make one effect; nobody is told busy.
func TestConcurrentDuplicates(t *testing.T) {
	db := openWithEffects(t)
	var duplicates atomic.Int64
	h := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{
		OnDuplicate: func(context.Context, idempotency.Key) { duplicates.Add(1) },
	}).Middleware(effect)
	atOnce(t, 500, func(int) error { _, err := h(newMessage("same")); return err })
	wantRows(t, db, 1, 1)
	if duplicates.Load() != 499 {
		t.Fatalf("got %d duplicates, want 499", duplicates.Load())
	}
}

// Features I1, I2, decision 8: 500 keys at once make 500 effects; nobody is told busy, and one connection serves all.
func TestConcurrentKeys(t *testing.T) {
	db := openWithEffects(t)
	h := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{}).Middleware(effect)
	atOnce(t, 500, func(i int) error { _, err := h(newMessage(fmt.Sprint(i))); return err })
	wantRows(t, db, 500, 500)
	if n := db.Stats().MaxIdleClosed; n > 0 {
		t.Fatalf("writers did not wait in a row: %d connections too many were opened", n)
	}
}

func atOnce(t *testing.T, n int, f func(int) error) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := f(i); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// Promises P3, P4: waiting for another handler ends with the message's context.
func TestWaitEndsWithContext(t *testing.T) {
	db := openWithEffects(t)
	r := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{})
	holding, free := make(chan struct{}), make(chan struct{})
	done := make(chan error)
	go func() {
		_, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			close(holding)
			<-free
			return effect(msg)
		})(newMessage("m1"))
		done <- err
	}()
	<-holding
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	msg := newMessage("m2")
	msg.SetContext(ctx)
	_, err := r.Middleware(effect)(msg)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `claim key "m2" of consumer "shop/billing"`) {
		t.Fatal(err)
	}
	close(free)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	wantRows(t, db, 1, 1)
}

// Decision 8: a handler that acks its message ends the message's context, and commits even so; also when an earlier
// attempt acked it.
func TestHandlerAcksItself(t *testing.T) {
	db := openWithEffects(t)
	r := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{})
	for i, failures := range []int{0, 1} {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		msg := newMessage(fmt.Sprint(i))
		msg.SetContext(ctx)
		left := failures
		h := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			msg.Ack()
			cancel()
			time.Sleep(10 * time.Millisecond) // database/sql rolls back on a goroutine of its own
			if left--; left >= 0 {
				return nil, errors.New("after the ack")
			}
			return effect(msg)
		})
		for range failures {
			if _, err := h(msg); err == nil {
				t.Fatal("this attempt fails")
			}
		}
		if _, err := h(msg); err != nil {
			t.Fatal(err)
		}
		wantRows(t, db, i+1, i+1)
	}
}

// Decision 2: a handler that nacks its message and returns no error wants it again, so nothing is applied.
func TestHandlerNacksItself(t *testing.T) {
	db := openWithEffects(t)
	h := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{}).Middleware(
		func(msg *message.Message) ([]*message.Message, error) {
			msg.Nack()
			_, err := effect(msg)
			return []*message.Message{newMessage("out")}, err
		})
	if out, err := h(newMessage("m1")); out != nil || err != nil {
		t.Fatal(out, err)
	}
	wantRows(t, db, 0, 0)
}

// Promise P1, P7: a handler that ends the transaction itself is told so, and its message is set aside, not absorbed.
func TestHandlerEndsTransaction(t *testing.T) {
	cause := classify.Transient(errors.New("boom"))
	for _, c := range []struct {
		name   string
		end    func(*sql.Tx) error
		result error
		rows   int
		class  classify.Class
	}{
		{"commit, success", (*sql.Tx).Commit, nil, 1, classify.ClassPermanent},
		{"rollback, success", (*sql.Tx).Rollback, nil, 0, classify.ClassPermanent},
		{"commit, failure", (*sql.Tx).Commit, cause, 1, classify.ClassPermanent},
		{"rollback, failure", (*sql.Tx).Rollback, cause, 0, classify.ClassTransient}, // clean, and common
	} {
		for _, outputs := range [][]*message.Message{nil, {newMessage("out")}} {
			t.Run(fmt.Sprintf("%s, %d outputs", c.name, len(outputs)), func(t *testing.T) {
				db := openWithEffects(t)
				h := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{}).Middleware(
					func(msg *message.Message) ([]*message.Message, error) {
						if _, err := effect(msg); err != nil {
							return nil, err
						}
						if err := c.end(idempotency.Tx(msg.Context())); err != nil {
							return nil, err
						}
						return outputs, c.result
					})
				out, err := h(newMessage("m1"))
				if out != nil || class(err) != c.class {
					t.Fatal(out, err)
				}
				if c.class == classify.ClassPermanent && !errors.Is(err, sql.ErrTxDone) {
					t.Fatal(err)
				}
				if c.result != nil && !errors.Is(err, c.result) {
					t.Fatal(err)
				}
				wantRows(t, db, c.rows, c.rows)
			})
		}
	}
}

// Promise P7: a handler that ends the transaction in SQL, leaves rows open, or removes the key, neither hangs the
// receiver nor spoils the connection for those behind it.
func TestHandlerSpoilsTransaction(t *testing.T) {
	for name, c := range map[string]struct {
		statement string
		fails     bool
	}{
		"ROLLBACK":  {`ROLLBACK`, true},
		"COMMIT":    {`COMMIT`, true},
		"key gone":  {`DELETE FROM spillway_keys`, true},
		"open rows": {`SELECT name FROM sqlite_master`, false},
	} {
		t.Run(name, func(t *testing.T) {
			db := openWithEffects(t)
			db.SetMaxOpenConns(1)
			r := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{})
			_, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
				if name == "open rows" {
					rows, err := idempotency.Tx(msg.Context()).Query(c.statement)
					if err == nil && !rows.Next() {
						err = errors.Join(errors.New("no rows"), rows.Err())
					}
					return nil, err
				}
				_, err := idempotency.Tx(msg.Context()).Exec(c.statement)
				return []*message.Message{newMessage("out")}, err
			})(newMessage("m1"))
			if (err != nil) != c.fails {
				t.Fatal(err)
			}
			if _, err := r.Middleware(effect)(newMessage("m2")); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Features I1: the same middleware attached twice passes through; another key on the same store is an error, not a wait
// without end; a claim of another store is independent.
func TestNested(t *testing.T) {
	db := openWithEffects(t)
	store := storeOn(db)
	r := newReceiver(t, store, idempotency.ReceiverConfig{})
	twin := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{})
	if _, err := r.Middleware(twin.Middleware(r.Middleware(effect)))(newMessage("m1")); err != nil {
		t.Fatal(err)
	}
	wantRows(t, db, 1, 1)

	other := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{Consumer: "shipping"})
	_, err := r.Middleware(other.Middleware(effect))(newMessage("m2"))
	if class(err) != classify.ClassPermanent || !strings.Contains(err.Error(), "inside a claim") {
		t.Fatal(err)
	}
	wantRows(t, db, 1, 1)

	far := openWithEffects(t)
	elsewhere := newReceiver(t, storeOn(far), idempotency.ReceiverConfig{})
	if _, err := r.Middleware(elsewhere.Middleware(effect))(newMessage("m3")); err != nil {
		t.Fatal(err)
	}
	wantRows(t, db, 1, 2)
	wantRows(t, far, 1, 1)
}

// Promise P1: a store that is down is an error with its cause, and the handler does not run.
func TestStoreDown(t *testing.T) {
	db := openWithEffects(t)
	h := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{MaxHold: time.Millisecond}).Middleware(effect)
	if _, err := db.Exec(`DROP TABLE spillway_keys`); err != nil {
		t.Fatal(err)
	}
	_, err := h(newMessage("m1"))
	var cause interface{ Code() int }
	if !givenBack(err) || !errors.As(err, &cause) || count(t, db, "effects") != 0 {
		t.Fatal(err)
	}
	_ = db.Close()
	if _, err := h(newMessage("m1")); err == nil || !strings.Contains(err.Error(), `key "m1" of consumer "shop/billing"`) {
		t.Fatal(err)
	}
}

// Conventions: hooks that panic are contained and logged, and the message has been applied.
func TestHookPanics(t *testing.T) {
	db := openWithEffects(t)
	logger := watermill.NewCaptureLogger()
	boom := func(context.Context, idempotency.Key) { panic("boom") }
	h := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{
		Logger: logger, OnApplied: boom, OnDuplicate: boom,
	}).Middleware(effect)
	for range 2 {
		if _, err := h(newMessage("m1")); err != nil {
			t.Fatal(err)
		}
	}
	wantRows(t, db, 1, 1)
	if n := len(logger.Captured()[watermill.ErrorLogLevel]); n != 2 {
		t.Fatalf("got %d errors logged, want 2", n)
	}
}

// Decision 6: by default the consumer is the router's name for the handler; outside a router it must be set.
func TestConsumer(t *testing.T) {
	db := openWithEffects(t)
	r, err := idempotency.NewReceiver(storeOn(db), idempotency.ReceiverConfig{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Middleware(effect)(newMessage("m1"))
	if class(err) != classify.ClassPermanent || !strings.Contains(err.Error(), "ReceiverConfig.Consumer") {
		t.Fatal(err)
	}
	wantRows(t, db, 0, 0)
	for _, name := range []string{"billing", "shipping"} {
		h := inRouter(t, name, r.Middleware)
		h("m1")
		h("m1")
	}
	wantRows(t, db, 2, 2)
}

// Promise P7, bad input: a handler that ignores the error with which SQLite ended the transaction, and writes on, is set
// aside at once: each further attempt would commit the same writes again.
func TestHandlerIgnoresEndedTransaction(t *testing.T) {
	for name, outputs := range map[string][]*message.Message{"without outputs": nil, "with outputs": {message.NewMessage("", nil)}} {
		t.Run(name, func(t *testing.T) {
			db := openWithEffects(t)
			if _, err := db.Exec(`CREATE TABLE once (id TEXT PRIMARY KEY); INSERT INTO once VALUES ('taken')`); err != nil {
				t.Fatal(err)
			}
			receiver := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{})
			_, err := receiver.Middleware(func(msg *message.Message) ([]*message.Message, error) {
				tx := idempotency.Tx(msg.Context())
				if _, err := tx.Exec(`INSERT OR ROLLBACK INTO once VALUES ('taken')`); err == nil {
					t.Error("the statement did not fail")
				}
				if _, err := tx.Exec(`INSERT INTO effects VALUES (?)`, msg.UUID); err != nil {
					t.Errorf("SQLite refuses writes after its rollback now: %v", err)
				}
				return outputs, nil
			})(message.NewMessage("id", nil))
			verdict := (*classify.Classifier)(nil).Classify(err)
			if verdict.Class != classify.ClassPermanent || !strings.Contains(verdict.Description, "Return the error of a failed statement") {
				t.Errorf("judged %+v: %v", verdict, err)
			}
			if n := count(t, db, "spillway_keys"); n != 0 {
				t.Errorf("%d keys", n)
			}
			// The gate and the connections are free again.
			if _, err := receiver.Middleware(effect)(message.NewMessage("next", nil)); err != nil {
				t.Error(err)
			}
		})
	}
}

package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
)

// Features I1, I2, decision 8: 500 keys at once make 500 effects; no delivery is told busy, and one connection serves all.
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

package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature I2: a handler that acks its message ends its context, and not its first statement.
func TestAckedFirst(t *testing.T) {
	db, _ := open(t, "")
	h := receiver(t, pipelining(t, db), idempotency.ReceiverConfig{}).Middleware(func(msg *message.Message) ([]*message.Message, error) {
		ctx := context.WithoutCancel(msg.Context())
		msg.Ack()
		_, err := idempotency.Tx(ctx).ExecContext(ctx, `INSERT INTO effects SELECT $1::text FROM pg_sleep($2)`, msg.UUID, 1.2)
		return nil, err
	})
	for _, id := range []string{"1", "1"} {
		ctx, cancel := context.WithCancel(context.Background())
		msg := newMessage(id)
		msg.SetContext(ctx)
		go func() { <-msg.Acked(); cancel() }()
		testkit.Must(h(msg))
		cancel()
	}
	wants(t, db, 1, 1)
}

// Promise P3: a handler that goes on with a context of its own, when its message has gone away, is let end. So is one
// that says nothing. A server that stands still for longer than the key may take by then fails a delivery, and not many
// in a row.
func TestGoneAway(t *testing.T) {
	db, _ := open(t, "")
	r := receiver(t, pipelining(t, db), idempotency.ReceiverConfig{})
	goes := func(id string, says bool) error {
		ctx, cancel := context.WithCancel(t.Context())
		msg := newMessage(id)
		msg.SetContext(ctx)
		_, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			cancel()
			if !says {
				return nil, nil
			}
			_, err := idempotency.Tx(msg.Context()).ExecContext(context.WithoutCancel(msg.Context()), `INSERT INTO effects SELECT $1::text FROM pg_sleep(0.1)`, id)
			return nil, err
		})(msg)
		return err
	}
	applied := 0
	for _, says := range []bool{true, false} {
		for range 8 {
			err := goes(fmt.Sprint(says), says)
			if err == nil {
				applied++
				break
			}
			t.Log(says, err)
		}
	}
	testkit.Equal(t, "applied", applied, 2)
	wants(t, db, 1, 2)
}

// Promise P3: a statement that ends its wait for a key by itself is an error of its own, and whether the message was
// applied is found out all the same. Row I2-wait-ends has the wait that ends with the message.
func TestWaitEnds(t *testing.T) {
	db, _ := open(t, "")
	db.SetMaxOpenConns(3)
	first := pipelining(t, db)
	h := receiver(t, pipelining(t, db), idempotency.ReceiverConfig{}).Middleware
	claim := testkit.Must(
		first.Claim(t.Context(), idempotency.Entry{Key: idempotency.Key{Consumer: "shop/billing", ID: "m"}}))
	for _, applied := range []bool{false, true} { // the key is held for longer than the message lasts, or not
		ends, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := h(func(msg *message.Message) ([]*message.Message, error) {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err := idempotency.Tx(msg.Context()).ExecContext(ctx, effect, "m")
			testkit.Is(t, err, context.DeadlineExceeded)
			if applied {
				testkit.NoError(t, claim.Commit(nil))
			}
			return nil, err
		})(message.NewMessageWithContext(ends, "m", []byte("payload")))
		testkit.Check(t, applied == (err == nil), "applied meanwhile: %t, %v", applied, err)
		if !applied {
			testkit.Is(t, err, context.DeadlineExceeded)
			testkit.Says(t, err, `claim key "m" of consumer "shop/billing": postgres: `)
		}
	}
	own := errors.New("own")
	for id, want := range map[string]error{"m": nil, "n": own} { // no transaction holds it: a duplicate is absorbed, a new one fails with its own error
		_, err := h(func(msg *message.Message) ([]*message.Message, error) {
			ctx, cancel := context.WithCancel(msg.Context())
			cancel()
			_, err := idempotency.Tx(msg.Context()).ExecContext(ctx, effect, id)
			testkit.Check(t, err != nil, "no error")
			return nil, own
		})(newMessage(id))
		testkit.Equal(t, id, err, want)
	}
	testkit.Must(h(write)(newMessage("m")))
	wants(t, db, 0, 1)
}

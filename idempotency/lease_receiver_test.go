package idempotency_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
)

// renewedInTime runs a test in which a lease must be renewed, again with a longer one where the lease was lost: a disk that
// stands still for longer than a lease lasts makes every renewal late.
func renewedInTime(t *testing.T, test func(lease time.Duration) error) {
	t.Helper()
	for lease := time.Second; ; lease *= 2 {
		err := test(lease)
		if err == nil {
			return
		}
		if !errors.Is(err, idempotency.ErrLeaseLost) || lease >= 8*time.Second {
			t.Fatalf("with a lease of %s: %v", lease, err)
		}
		t.Logf("with a lease of %s: %v", lease, err)
	}
}

// Feature I3: where the database is gone under a running handler, the handler is cancelled before another has the key.
func TestLeaseCutOff(t *testing.T) {
	onLeaseBases(t, func(t *testing.T, b leaseBase) {
		t.Parallel()
		address, db := b.ready(t)
		other := b.store(b.open(t, address))
		var lost atomic.Int32
		r := newReceiver(t, b.store(db), idempotency.ReceiverConfig{Lease: 4 * time.Second, PutBackAfter: time.Millisecond,
			OnLeaseLost: func(context.Context, idempotency.Key) { lost.Add(1) }})
		_, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			_ = db.Close()
			ctx := msg.Context()
			eventually(t, "another has the key", func() bool {
				cancelled := ctx.Err() != nil
				_, err := other.Lease(context.Background(), idempotency.Entry{Key: leaseKey}, time.Minute)
				if err == nil && !cancelled && ctx.Err() == nil {
					t.Error("another has the key, and the handler knows nothing")
				}
				return err == nil
			})
			if !errors.Is(context.Cause(ctx), idempotency.ErrLeaseLost) {
				t.Error(context.Cause(ctx))
			}
			return nil, ctx.Err()
		})(newMessage("m1"))
		if !aborted(err) || lost.Load() != 1 {
			t.Fatal(err, lost.Load())
		}
	})
}

// Feature I3: a handler that succeeds after another has taken the key over changes nothing of what that one records, and its
// message is put back; it is absorbed when it comes again.
func TestLeaseTakenOver(t *testing.T) {
	onLeaseBases(t, func(t *testing.T, b leaseBase) {
		_, db := b.ready(t)
		var lost atomic.Int32
		r := newReceiver(t, b.store(db), idempotency.ReceiverConfig{Lease: time.Hour, PutBackAfter: time.Millisecond,
			OnLeaseLost: func(context.Context, idempotency.Key) { lost.Add(1) }})
		output := func(text string) []*message.Message { return []*message.Message{message.NewMessage("", []byte(text))} }
		fences := []int64{}
		note := func(msg *message.Message) {
			token, _ := idempotency.Fence(msg.Context())
			fences = append(fences, token)
		}
		_, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			note(msg)
			execute(t, db, `UPDATE spillway_keys SET expires_at = 1, applied_at = 1`) // as if it had been suspended
			if _, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) { note(msg); return output("second"), nil })(newMessage("m1")); err != nil {
				t.Error(err)
			}
			return output("first"), nil
		})(newMessage("m1"))
		if !aborted(err) || lost.Load() != 1 || len(fences) != 2 || fences[0] >= fences[1] {
			t.Fatal(err, lost.Load(), fences)
		}
		out, err := r.Middleware(func(*message.Message) ([]*message.Message, error) { t.Error("it ran again"); return nil, nil })(newMessage("m1"))
		if err != nil || len(out) != 1 || string(out[0].Payload) != "second" {
			t.Fatal(out, err)
		}
	})
}

// Feature I3: where the answer to a commit is lost, a record is found by the next try, and an unknown lease is
// given up, so that the next delivery need not wait for its end.
func TestLeaseAnswerLost(t *testing.T) {
	cut := errors.New("connection reset by peer")
	var n atomic.Int32
	f := &faulty{}
	db, observer := openFaulty(t, f)
	r := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{Lease: time.Hour})
	lose := func() error { // the answer to the first commit from here on
		if n.Add(1) == 1 {
			return cut
		}
		return nil
	}
	f.onCommitted = lose
	runs := 0
	h := r.Middleware(func(*message.Message) ([]*message.Message, error) {
		runs++
		n.Store(0)
		return nil, nil
	})
	if _, err := h(newMessage("m1")); !errors.Is(err, cut) || runs != 0 {
		t.Fatal(err, runs)
	}
	for range 2 {
		if _, err := h(newMessage("m1")); err != nil || runs != 1 {
			t.Fatal(err, runs)
		}
	}
	if n := count(t, observer, `spillway_keys WHERE expires_at IS NULL`); n != 1 {
		t.Fatal(n)
	}
}

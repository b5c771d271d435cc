package idempotency_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// held is a store whose keys are all leased to another process.
type held struct{ idempotency.Store }

func (held) Consumer(handler string) string { return handler }
func (held) Claim(context.Context, idempotency.Entry) (idempotency.Claim, error) {
	return nil, idempotency.ErrHeld
}
func (held) Lease(context.Context, idempotency.Entry, time.Duration) (idempotency.Lease, error) {
	return nil, idempotency.ErrHeld
}

// Feature I3, promises P3, P4: who is put back is held for at least half a second, and at most for a second,
// lest a subscriber that delivers at once spins; and no longer than its context lasts.
func TestRequeueAfter(t *testing.T) {
	for _, lease := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			r := newReceiver(t, held{}, idempotency.ReceiverConfig{Lease: lease})
			h := r.Middleware(func(*message.Message) ([]*message.Message, error) { t.Error("called"); return nil, nil })
			least, most := time.Hour, time.Duration(0)
			for range 50 {
				began := time.Now()
				_, err := h(newMessage("m1"))
				testkit.Require(t, requeued(err), "%v", err)
				took := time.Since(began)
				least, most = min(least, took), max(most, took)
			}
			if least < 500*time.Millisecond || most > time.Second+time.Nanosecond || most-least < 80*time.Millisecond {
				t.Errorf("held for %s to %s", least, most)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			msg := newMessage("m1")
			msg.SetContext(ctx)
			began := time.Now()
			if _, err := h(msg); !requeued(err) || time.Since(began) != 100*time.Millisecond {
				t.Errorf("%v after %s", err, time.Since(began))
			}
		})
	}
}
